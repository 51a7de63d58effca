"""Keys and values to bytes and back: the formats of Kafka's Java serializers, JSON, and the form your own must have.

A serde is any object with `serialize(topic, value)` and `deserialize(topic, data)`; producers need only the first,
consumers only the second, and a plain function of the value or the bytes does as well. None is a null key or value
(a tombstone) and stays None. A format that cannot take what it is given raises ValueError or TypeError; the client
makes a SerializationError of it that names the topic and the field. Avro is in `avro`.

A serde that may have to ask somebody also has `waits_to_serialize(topic, value)` and `waits_to_deserialize(topic,
data)`: whether it would have to now. Then it is called in another thread, where nobody has to wait with it.
"""

from __future__ import annotations

import codecs
import json
import struct
from collections.abc import Callable
from struct import Struct
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

from ottla.client.errors import ClientError, SerializationError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)

Field: TypeAlias = Literal["key", "value"]


class Serializer(Protocol[T_contra]):
    def serialize(self, topic: str, value: T_contra | None, /) -> bytes | None: ...


class Deserializer(Protocol[T_co]):
    def deserialize(self, topic: str, data: bytes | None, /) -> T_co | None: ...


class BytesSerde:
    """Bytes as they are. For a client that was given no serde it is the same."""

    def serialize(self, topic: str, value: bytes | bytearray | memoryview | None) -> bytes | None:
        if value is None or isinstance(value, bytes):
            return value
        if isinstance(value, (bytearray, memoryview)):
            return bytes(value)
        raise TypeError(f"bytes are needed, but {_kind(value)} was given")

    def deserialize(self, topic: str, data: bytes | None) -> bytes | None:
        return data


class StringSerde:
    """Text, UTF-8 unless told otherwise."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = codecs.lookup(encoding).name

    def serialize(self, topic: str, value: str | None) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, str):
            raise TypeError(f"text is needed, but {_kind(value)} was given")
        return value.encode(self._encoding)

    def deserialize(self, topic: str, data: bytes | None) -> str | None:
        return None if data is None else data.decode(self._encoding)


class _NumberSerde(Generic[T]):
    """A number of a fixed size, most significant byte first."""

    def __init__(self, form: str, name: str, kind: type[T]) -> None:
        self._form = Struct(form)
        self._name = name
        self._kind = kind

    def serialize(self, topic: str, value: T | None) -> bytes | None:
        if value is None:
            return None
        # A bool is an int to Python, and never what somebody meant who chose a number.
        if isinstance(value, bool) or not isinstance(value, (int, self._kind)):
            raise TypeError(f"a number ({self._name}) is needed, but {_kind(value)} was given")
        try:
            return self._form.pack(value)
        except (struct.error, OverflowError) as e:
            raise ValueError(f"{value!r} does not fit {self._name}, which has {self._form.size} bytes") from e

    def deserialize(self, topic: str, data: bytes | None) -> T | None:
        if data is None:
            return None
        if len(data) != self._form.size:
            raise ValueError(f"{self._name} has {self._form.size} bytes, but {len(data)} are there")
        number: T = self._form.unpack(data)[0]
        return number


class ShortSerde(_NumberSerde[int]):
    def __init__(self) -> None:
        super().__init__(">h", "a short", int)


class IntegerSerde(_NumberSerde[int]):
    def __init__(self) -> None:
        super().__init__(">i", "an integer", int)


class LongSerde(_NumberSerde[int]):
    def __init__(self) -> None:
        super().__init__(">q", "a long", int)


class FloatSerde(_NumberSerde[float]):
    def __init__(self) -> None:
        super().__init__(">f", "a float", float)


class DoubleSerde(_NumberSerde[float]):
    def __init__(self) -> None:
        super().__init__(">d", "a double", float)


class JsonSerde:
    """JSON in UTF-8. `default` turns what JSON does not know into something it knows, as for `json.dumps`.

    `load` makes something of what was read, for example an instance of your class.
    """

    def __init__(
        self, *, default: Callable[[Any], Any] | None = None, load: Callable[[Any], Any] | None = None
    ) -> None:
        self._encode = json.JSONEncoder(
            default=default, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        ).encode
        self._load = load

    def serialize(self, topic: str, value: Any) -> bytes | None:
        return None if value is None else self._encode(value).encode()

    def deserialize(self, topic: str, data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            value = json.loads(data)
        except json.JSONDecodeError as e:
            raise ValueError(f"not JSON: {e}") from e
        return value if self._load is None else self._load(value)


_NAMED: dict[str, Callable[[], Any]] = {
    "bytes": BytesSerde,
    "string": StringSerde,
    "short": ShortSerde,
    "integer": IntegerSerde,
    "long": LongSerde,
    "float": FloatSerde,
    "double": DoubleSerde,
    "json": JsonSerde,
}


def serde_named(name: str) -> Any:
    """The serde for a name a person has typed: bytes, string, short, integer, long, float, double or json."""
    try:
        return _NAMED[name]()
    except KeyError:
        raise ValueError(f"no serde is called {name!r}; known: {', '.join(_NAMED)}") from None


def serializing(field: Field, serializer: Serializer[Any] | Callable[[Any], bytes | None]) -> Callable[[str, Any], Any]:
    """A function of topic and value whose errors say which field of which topic could not be serialized."""
    return _guarded(field, "serialize", serializer)


def deserializing(
    field: Field, deserializer: Deserializer[Any] | Callable[[bytes | None], Any]
) -> Callable[[str, bytes | None], Any]:
    """A function of topic and bytes whose errors say which field of which topic could not be deserialized."""
    return _guarded(field, "deserialize", deserializer)


def _guarded(field: Field, verb: str, given: Any) -> Callable[[str, Any], Any]:
    convert = getattr(given, verb, None)
    if convert is None:
        if not callable(given):
            raise TypeError(f"a {verb}r must be callable or have a method {verb}, but was {given!r}")

        def convert(topic: str, value: Any) -> Any:
            return given(value)

    def guarded(topic: str, value: Any) -> Any:
        try:
            return convert(topic, value)
        except ClientError:
            raise
        except Exception as e:
            # Formats may be the user's, and whatever they raise means one thing: not this key or value.
            raise SerializationError(f"{topic}: the {field} could not be {verb}d: {e}") from e

    return guarded


def _kind(value: object) -> str:
    return type(value).__name__
