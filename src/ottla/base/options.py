"""Settings declared once: an `Option` parses, checks, describes and documents itself, an `OptionSet` does so for many.

Brokers, topics and clients declare theirs with it. Nothing here knows what a setting means, reads a file or the
environment: it turns text into values and says in one sentence what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import NamedTuple, Protocol

from ottla.base.errors import InvalidConfigError

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1
MAX_DOUBLE = 1.7976931348623157e308
_NO_EFFECT = " No effect here: "


class Type(Enum):
    """The kinds of value, with the number DescribeConfigs gives each (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Update(Enum):
    """How a setting of a running broker can be changed (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Secret:
    """A password: it must be asked for by name, so it cannot slip into a log line or an error."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "[hidden]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


Value = bool | int | float | str | tuple[str, ...] | Secret | None


class Check(Protocol):
    """A rule for a value beyond its type. `str()` of it is the rule as documentation shows it."""

    def problem(self, value: Value) -> str | None:
        """What is wrong, to follow the setting's name ("must be …"), or None."""


class Between:
    """Bounds, both inclusive. `or_else` is one value outside them that is allowed too (-1 for "the default")."""

    def __init__(self, low: float | None = None, high: float | None = None, *, or_else: int | None = None) -> None:
        self.low = low
        self.high = high
        self.or_else = or_else

    def problem(self, value: Value) -> str | None:
        if isinstance(value, (int, float)) and value != self.or_else:
            too_low = self.low is not None and value < self.low
            too_high = self.high is not None and value > self.high
            if too_low or too_high:
                return f"must be {self}"
        return None

    def __str__(self) -> str:
        if self.high is None:
            bounds = f"at least {self.low}"
        else:
            bounds = f"{self.low} to {self.high}" if self.low is not None else f"at most {self.high}"
        return bounds if self.or_else is None else f"{self.or_else} or {bounds}"


class OneOf:
    def __init__(self, *allowed: str, any_case: bool = False) -> None:
        self.allowed = allowed
        self._any_case = any_case

    def problem(self, value: Value) -> str | None:
        if self._any_case and isinstance(value, str):
            value = value.lower()
        return None if value in self.allowed else f"must be one of {', '.join(self.allowed)}"

    def __str__(self) -> str:
        return ", ".join(self.allowed)


class EachOf:
    """Every element of a list is one of the allowed ones."""

    def __init__(self, *allowed: str) -> None:
        self.allowed = allowed

    def problem(self, value: Value) -> str | None:
        if isinstance(value, tuple) and all(item in self.allowed for item in value):
            return None
        return f"may only name {', '.join(self.allowed)}"

    def __str__(self) -> str:
        return f"a list of {', '.join(self.allowed)}"


class Matching:
    """Text (or each element of a list) that fits a pattern, which `form` puts into words."""

    def __init__(self, pattern: str, form: str) -> None:
        self._pattern = re.compile(pattern)
        self.form = form

    def problem(self, value: Value) -> str | None:
        items = value if isinstance(value, tuple) else (value,)
        if all(isinstance(item, str) and self._pattern.fullmatch(item) for item in items):
            return None
        return f"must be {self.form}"

    def __str__(self) -> str:
        return self.form


class Option(NamedTuple):
    name: str
    type: Type
    default: Value
    doc: str
    valid: Check | None = None
    importance: str = "medium"
    update: Update = Update.READ_ONLY
    deprecated: str = ""
    """What to use instead, if the setting should no longer be used."""
    no_effect: str = ""
    """Why the setting does nothing here although it is accepted. Empty: it does what it says."""
    refused: str = ""
    """Why only the default is accepted: to ignore another value would feign protection, or a place for data."""

    @property
    def documentation(self) -> str:
        """What DescribeConfigs tells about the setting; `no_effect_in` finds the second sentence again."""
        return f"{self.doc}{_NO_EFFECT}{self.no_effect}." if self.no_effect else self.doc

    def refusal(self, value: Value) -> str | None:
        """The sentence for a value that must not be set here, or None."""
        if not self.refused or value == self.default or value in (None, "", ()):
            return None
        return f"{self.name} is set, but {self.refused}; leave it out"

    @property
    def sensitive(self) -> bool:
        return self.type is Type.PASSWORD

    def parse(self, text: str | None) -> Value:
        """The value of `text`; None is only a value where the default is None too."""
        if text is None:
            if self.default is None:
                return None
            raise InvalidConfigError(self.name, f"{self.name} needs a value, but was null")
        try:
            value = _PARSERS[self.type](text)
        except ValueError as e:
            raise InvalidConfigError(self.name, f"{self.name} must be {e}, but was {self._shown(text)}") from None
        problem = self.valid.problem(value) if self.valid is not None else None
        if problem is not None:
            raise InvalidConfigError(self.name, f"{self.name} {problem}, but was {self._shown(text)}")
        return value

    def _shown(self, text: str) -> str:
        return "[hidden]" if self.sensitive else f"{text!r}"


def no_effect_in(documentation: str) -> str | None:
    """Why a setting does nothing, from what its `documentation` says; None if it does something or nobody knows."""
    _, found, reason = documentation.partition(_NO_EFFECT)
    return reason.removesuffix(".") if found else None


class Values(Mapping[str, Value]):
    """The settings of one OptionSet with their values. `given` holds the names that were set, not defaulted."""

    def __init__(self, values: Mapping[str, Value], given: Iterable[str]) -> None:
        self._values = values
        self.given = frozenset(given)

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def flag(self, name: str) -> bool:
        value = self[name]
        if isinstance(value, bool):
            return value
        raise TypeError(f"{name} is not a boolean")

    def integer(self, name: str) -> int:
        value = self[name]
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise TypeError(f"{name} is not an integer")

    def optional_integer(self, name: str) -> int | None:
        return None if self[name] is None else self.integer(name)

    def number(self, name: str) -> float:
        value = self[name]
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
        raise TypeError(f"{name} is not a number")

    def text(self, name: str) -> str:
        value = self[name]
        if isinstance(value, str):
            return value
        raise TypeError(f"{name} is not text")

    def optional_text(self, name: str) -> str | None:
        return None if self[name] is None else self.text(name)

    def items_of(self, name: str) -> tuple[str, ...]:
        value = self[name]
        if isinstance(value, tuple):
            return value
        raise TypeError(f"{name} is not a list")

    def secret(self, name: str) -> str | None:
        value = self[name]
        if value is None or isinstance(value, Secret):
            return None if value is None else value.reveal()
        raise TypeError(f"{name} is not a password")


class OptionSet(Mapping[str, Option]):
    """Options by name. `prefixes` are starts of names that are accepted unseen (settings of plugins and listeners).

    `elsewhere` has names that others know as settings, and what there is in their place.
    """

    def __init__(
        self,
        what: str,
        options: Iterable[Option],
        *,
        prefixes: tuple[str, ...] = (),
        elsewhere: Mapping[str, str] | None = None,
    ) -> None:
        self.what = what
        self.elsewhere = elsewhere or {}
        self._options: dict[str, Option] = {}
        self._prefixes = prefixes
        for option in options:
            if option.name in self._options:
                raise ValueError(f"{option.name} is declared twice")
            self._options[option.name] = option

    def __getitem__(self, name: str) -> Option:
        return self._options[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)

    def find(self, name: str) -> Option:
        """The option of this name, or an error that suggests the name that may have been meant."""
        option = self._options.get(name)
        if option is not None:
            return option
        instead = self.elsewhere.get(name.replace("_", "."))
        if instead is not None:
            raise InvalidConfigError(name, f"{name} is no {self.what} setting here: {instead}")
        hint = self.suggestion(name)
        raise InvalidConfigError(
            name, f"unknown {self.what} setting {name}" + (f"; did you mean {hint}?" if hint else "")
        )

    def accepts_unseen(self, name: str) -> bool:
        return bool(self._prefixes) and name.startswith(self._prefixes)

    def suggestion(self, name: str) -> str | None:
        import difflib  # only a typing error pays for this import

        close = difflib.get_close_matches(name, self._options, cutoff=0.75)
        return close[0] if close else None

    def problems(self, settings: Mapping[str, str | None]) -> list[InvalidConfigError]:
        """Everything `parse` would refuse, where the first is not enough."""
        found = []
        for name, text in settings.items():
            try:
                if not self.accepts_unseen(name):
                    self.find(name).parse(text)
            except InvalidConfigError as e:
                found.append(e)
        return found

    def parse(self, settings: Mapping[str, str | None]) -> Values:
        values: dict[str, Value] = {option.name: option.default for option in self._options.values()}
        for name, text in settings.items():
            if self.accepts_unseen(name):
                values[name] = text
            else:
                values[name] = self.find(name).parse(text)
        return Values(values, settings)


def format_value(value: Value) -> str | None:
    """The text that parses back to `value`; a password is never given away."""
    if value is None or isinstance(value, Secret):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if value == MAX_DOUBLE and isinstance(value, float):
        return "1.7976931348623157E308"
    return str(value)


_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def _parse_boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError("true or false")
    return lowered == "true"


def _whole_number(text: str, bits: int) -> int:
    stripped = text.strip()
    if not _INTEGER.fullmatch(stripped):
        raise ValueError("a whole number")
    number = int(stripped)
    limit: int = 2 ** (bits - 1)
    if not -limit <= number < limit:
        raise ValueError(f"a whole number of at most {bits} bits")
    return number


def _parse_short(text: str) -> int:
    return _whole_number(text, 16)


def _parse_int(text: str) -> int:
    return _whole_number(text, 32)


def _parse_long(text: str) -> int:
    return _whole_number(text, 64)


def _parse_double(text: str) -> float:
    stripped = text.strip()
    if not _DECIMAL.fullmatch(stripped):
        raise ValueError("a number")
    number = float(stripped)
    if abs(number) > MAX_DOUBLE:
        raise ValueError("a number a double can hold")
    return number


def _parse_text(text: str) -> str:
    return text.strip()


def _parse_password(text: str) -> Secret:
    return Secret(text.strip())


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",")) if text.strip() else ()


_PARSERS: dict[Type, Callable[[str], Value]] = {
    Type.BOOLEAN: _parse_boolean,
    Type.STRING: _parse_text,
    Type.INT: _parse_int,
    Type.SHORT: _parse_short,
    Type.LONG: _parse_long,
    Type.DOUBLE: _parse_double,
    Type.LIST: _parse_list,
    Type.CLASS: _parse_text,
    Type.PASSWORD: _parse_password,
}
