"""A section of a pipeline's description: values by their keys, with the place each was written at.

It knows types of values, not their meaning. Who reads a section takes each key once and then calls `finish`, which
refuses what nobody took: a misspelt option never goes unnoticed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple, NoReturn, TypeVar, overload

from ottla.spark.pipeline.problems import Place, Problem, SpecError, suggestion

T = TypeVar("T", str, int, float, bool, list[str], dict[str, str])

_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")
_UNITS = {
    1: ("ms", "milli", "millis", "millisecond", "milliseconds"),
    1000: ("s", "sec", "secs", "second", "seconds"),
    60_000: ("m", "min", "mins", "minute", "minutes"),
    3_600_000: ("h", "hour", "hours"),
    86_400_000: ("d", "day", "days"),
}
_UNIT_MS = {name: ms for ms, names in _UNITS.items() for name in names}


class Scalar(NamedTuple):
    """A plain value, and how it was written: an option's text `08` stays as it is."""

    value: str | int | float | bool | None
    text: str


class Entry(NamedTuple):
    value: Scalar | list[Scalar] | Section
    place: Place
    text_place: Place
    """Where the value's text begins: the line after the key's for a block of text."""


class _Required:
    pass


REQUIRED: Final = _Required()


class Section:
    def __init__(
        self,
        entries: Mapping[str, Entry],
        place: Place,
        title: str,
        *,
        directory: Path | None = None,
        kafka: Mapping[str, str] | None = None,
    ) -> None:
        self.place = place
        self.title = title
        """What the section is, as messages name it: `source orders`."""
        self.directory = directory or Path()
        """What relative paths start from: where the file is."""
        self.kafka = dict(kafka or {})
        """Client properties of the whole pipeline, for those who talk to a cluster."""
        self._entries = dict(entries)
        self._asked: set[str] = set()

    @classmethod
    def of(
        cls,
        values: Mapping[str, object],
        place: Place,
        title: str,
        *,
        directory: Path | None = None,
        kafka: Mapping[str, str] | None = None,
    ) -> Section:
        """A section from Python values, all at one place."""
        entries = {}
        for key, value in values.items():
            converted = _converted(value, place, f"{title}, {key}")
            if converted is None:
                raise SpecError([Problem(place, f"{title}: {key} cannot be a {type(value).__name__}")])
            entries[key] = Entry(converted, place, place)
        return cls(entries, place, title, directory=directory, kafka=kafka)

    # What is there

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def put(self, key: str, entry: Entry) -> None:
        self._entries[key] = entry

    def names(self) -> list[str]:
        return list(self._entries)

    def place_of(self, key: str) -> Place:
        entry = self._entries.get(key)
        return self.place if entry is None else entry.place

    def text_place_of(self, key: str) -> Place:
        entry = self._entries.get(key)
        return self.place if entry is None else entry.text_place

    def problem(self, key: str, message: str) -> Problem:
        return Problem(self.place_of(key), f"{self.title}: {message}")

    def fail(self, key: str, message: str) -> NoReturn:
        raise SpecError([self.problem(key, message)])

    # Taking

    @overload
    def take(self, key: str, kind: type[T]) -> T: ...
    @overload
    def take(self, key: str, kind: type[T], default: T) -> T: ...
    @overload
    def take(self, key: str, kind: type[T], default: None) -> T | None: ...
    def take(self, key: str, kind: type[T], default: T | _Required | None = REQUIRED) -> T | None:
        """The value of `key` as str, int, float, bool, list[str] or dict[str, str]; it must be there if there is no
        default."""
        self._asked.add(key)
        entry = self._entries.get(key)
        if entry is None or (isinstance(entry.value, Scalar) and entry.value.value is None):
            if isinstance(default, _Required):
                self.fail(key, f"{key!r} is missing")
            return default
        found = _as_kind(entry.value, kind)
        if found is None:
            self.fail(key, f"{key!r} must be {_KIND_NAMES[_origin(kind)]}")
        return found

    @overload
    def take_choice(self, key: str, choices: Iterable[str]) -> str: ...
    @overload
    def take_choice(self, key: str, choices: Iterable[str], default: str) -> str: ...
    @overload
    def take_choice(self, key: str, choices: Iterable[str], default: None) -> str | None: ...
    def take_choice(self, key: str, choices: Iterable[str], default: str | _Required | None = REQUIRED) -> str | None:
        names = list(choices)
        found = self.take(key, str) if isinstance(default, _Required) else self.take(key, str, default)
        if found is not None and found not in names:
            self.fail(key, f"{key!r} cannot be {found!r}.{suggestion(found, names)}")
        return found

    @overload
    def take_duration_ms(self, key: str, default: int) -> int: ...
    @overload
    def take_duration_ms(self, key: str, default: None = None) -> int | None: ...
    def take_duration_ms(self, key: str, default: int | None = None) -> int | None:
        """A length of time, such as `500 ms`, `10 seconds`, `5 minutes`."""
        text = self.take(key, str, None)
        if text is None:
            return default
        matched = _DURATION.fullmatch(text.lower())
        if matched is None or matched[2] not in _UNIT_MS:
            self.fail(key, f"{key!r} is not a length of time: {text!r}. Write it as in '10 seconds' or '500 ms'")
        return round(float(matched[1]) * _UNIT_MS[matched[2]])

    def take_path(self, key: str) -> Path:
        """A path, relative to where the pipeline's file is."""
        return self.resolve(self.take(key, str))

    def resolve(self, path: str) -> Path:
        return self.directory / Path(path).expanduser()

    def take_section(self, key: str) -> Section | None:
        """The section below `key`; an empty one counts as absent."""
        self._asked.add(key)
        entry = self._entries.get(key)
        if entry is None or (isinstance(entry.value, Scalar) and entry.value.value is None):
            return None
        if not isinstance(entry.value, Section):
            self.fail(key, f"{key!r} must be a section of keys and values")
        return entry.value

    def sections(self) -> list[tuple[str, Section]]:
        """All of it as named sections below this one."""
        return [(key, found) for key in self.names() if (found := self.take_section(key)) is not None]

    def finish(self) -> None:
        """Refuses keys that nobody asked for."""
        unknown = [
            self.problem(key, f"there is no option {key!r}.{suggestion(key, self._asked)}")
            for key in self._entries
            if key not in self._asked
        ]
        if unknown:
            raise SpecError(unknown)


_KIND_NAMES: dict[type, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list of plain values",
    dict: "keys with plain values",
}


def _origin(kind: type) -> type:
    return getattr(kind, "__origin__", kind)


def _as_kind(value: Scalar | list[Scalar] | Section, kind: type[T]) -> T | None:
    """None if the value is of another kind."""
    found: object = None
    origin = _origin(kind)
    if origin is list and not isinstance(value, Section):
        found = [item.text for item in value] if isinstance(value, list) else [value.text]
    elif origin is dict and isinstance(value, Section):
        entries = {key: entry.value for key, entry in value._entries.items()}
        if all(isinstance(item, Scalar) for item in entries.values()):
            found = {key: item.text for key, item in entries.items() if isinstance(item, Scalar)}
    elif isinstance(value, Scalar):
        if origin is str:
            found = value.text
        elif origin is float and isinstance(value.value, int) and not isinstance(value.value, bool):
            found = float(value.value)
        elif type(value.value) is origin:
            found = value.value
    return found  # type: ignore[return-value]  # the branch that was taken is that of T


def _converted(value: object, place: Place, title: str) -> Scalar | list[Scalar] | Section | None:
    if value is None or isinstance(value, bool):
        return Scalar(value, "" if value is None else str(value).lower())
    if isinstance(value, (str, int, float)):
        return Scalar(value, str(value))
    if isinstance(value, Path):
        return Scalar(str(value), str(value))
    if isinstance(value, Mapping):
        return Section.of({str(key): item for key, item in value.items()}, place, title)
    if isinstance(value, (list, tuple)):
        items = [_converted(item, place, title) for item in value]
        if all(isinstance(item, Scalar) for item in items):
            return [item for item in items if isinstance(item, Scalar)]
    return None
