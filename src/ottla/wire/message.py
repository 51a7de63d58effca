"""The base classes messages are declared with.

A message or struct is a class whose body lists its fields, each declared once with the versions it lives in. The class
becomes a plain slotted object: keyword-only constructor with Kafka's defaults, `==`, a short repr. `Message` adds
`decode` and `encode`, which come from the compiler. Declarations say what the bytes are, never what they mean.

Class attributes are written in capitals, because small names belong to wire fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self, dataclass_transform

from ottla.base.errors import DecodeError
from ottla.wire import compiler, reference
from ottla.wire.fields import IMPLIED, NO_VERSIONS, Field, parse_versions
from ottla.wire.primitives import Buffer, read_int16, write_int16

_REPR_BYTES_MAX = 24


# The field functions are deliberately not named as field specifiers: a type checker then takes each declaration as a
# default value, which is the truth here, for every field has one.
@dataclass_transform(kw_only_default=True)
class StructType(type):
    """Takes the field declarations out of the class body and gives the class slots of the same names."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **keywords: Any) -> StructType:
        fields = tuple(value for value in namespace.values() if isinstance(value, Field))
        for key in [key for key, value in namespace.items() if isinstance(value, Field)]:
            namespace.pop(key).name = key
        namespace["__slots__"] = tuple(field.name for field in fields)
        if fields or "FIELDS" not in namespace:
            namespace["FIELDS"] = fields
        return super().__new__(mcs, name, bases, namespace, **keywords)


class Struct(metaclass=StructType):
    """A group of fields inside a message. Its versions are those of the message that holds it."""

    FIELDS: ClassVar[tuple[Field, ...]] = ()

    def __init__(self, **values: Any) -> None:
        # Built on first use: most of the declared classes are never instantiated in one process.
        cls = type(self)
        cls.__init__ = _build_initializer(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.FIELDS)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = (f"{field.name}={_show(getattr(self, field.name), field.sensitive)}" for field in self.FIELDS)
        return f"{type(self).__name__}({', '.join(shown)})"


class Message(Struct):
    """The top of what travels in one piece: a request, a response, a header, a stored record."""

    VERSIONS: ClassVar[range] = NO_VERSIONS
    FLEXIBLE_VERSIONS: ClassVar[range] = NO_VERSIONS
    _DECODERS: ClassVar[dict[int, compiler.Decoder]] = {}
    _ENCODERS: ClassVar[dict[int, compiler.Encoder]] = {}

    def __init_subclass__(cls, *, versions: str = "none", flexible: str = "none", **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.VERSIONS = parse_versions(versions)
        cls.FLEXIBLE_VERSIONS = parse_versions(flexible)
        cls._DECODERS = {}
        cls._ENCODERS = {}

    @classmethod
    def decode(cls, buffer: Buffer, version: int, position: int = 0) -> tuple[Self, int]:
        """The message that starts at `position`, and the position after it. Bytes beyond it are not looked at.

        Fields of type `records` are views of `buffer`; everything else is a copy.
        """
        decoder = cls._DECODERS.get(version)
        if decoder is None:
            decoder = cls._DECODERS[version] = compiler.message_decoder(cls, version)
        return decoder(buffer, position)

    def encode(self, version: int) -> bytes:
        out: list[bytes] = []
        self.encode_into(out, version)
        try:
            return b"".join(out)
        except TypeError:
            # Something that is not bytes was given as bytes; the reference codec names the field.
            reference.encode(self, version, version in self.FLEXIBLE_VERSIONS)
            raise

    def encode_into(self, out: list[bytes], version: int) -> None:
        """Appends the pieces of the encoded message; large values are appended as they are, not copied."""
        encoder = self._ENCODERS.get(version)
        if encoder is None:
            encoder = self._ENCODERS[version] = compiler.message_encoder(type(self), version)
        encoder(self, out)


class Request(Message):
    API_KEY: ClassVar[int] = -1

    def __init_subclass__(cls, *, api: int = -1, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.API_KEY = int(api)


class Response(Message):
    API_KEY: ClassVar[int] = -1

    def __init_subclass__(cls, *, api: int = -1, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.API_KEY = int(api)


class StoredRecord(Message):
    """A message kept in a log or carried as opaque bytes: its own version, an int16, comes first."""

    READS_NEWER: ClassVar[bool] = False

    def __init_subclass__(cls, *, reads_newer: bool = False, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.READS_NEWER = reads_newer

    def encode_versioned(self, version: int) -> bytes:
        return write_int16(version) + self.encode(version)

    @classmethod
    def decode_versioned(cls, buffer: Buffer) -> Self:
        """Reads the version, then the record. `READS_NEWER` classes read the part they know of a newer version."""
        version = stored_version(buffer)
        if cls.READS_NEWER:
            version = min(version, cls.VERSIONS[-1])
        return cls.decode(buffer, version, 2)[0]


def stored_version(buffer: Buffer) -> int:
    """The version a stored key or value starts with."""
    version: int = read_int16(buffer, 0)[0]
    if version < 0:
        raise DecodeError(f"the version {version} is negative", path="version")
    return version


def _build_initializer(cls: type[Struct]) -> Callable[..., None]:
    """A keyword-only `__init__`; lists and structs that are defaults are made anew for every object."""
    names: dict[str, Any] = {"_unset": IMPLIED}
    parameters = []
    lines = []
    for index, field in enumerate(cls.FIELDS):
        value = field.name
        if field.default is IMPLIED:
            parameters.append(f"{field.name}=_unset")
            names[f"_make{index}"] = list if field.kind == "array" else field.of
            value = f"_make{index}() if {field.name} is _unset else {field.name}"
        else:
            parameters.append(f"{field.name}=_default{index}")
            names[f"_default{index}"] = field.default
        lines.append(f"    _self.{field.name} = {value}")
    signature = ", ".join(["_self", "*", *parameters]) if parameters else "_self"
    source = f"def __init__({signature}):\n" + ("\n".join(lines) or "    pass")
    exec(compile(source, f"<constructor of {cls.__name__}>", "exec"), names)
    initializer: Callable[..., None] = names["__init__"]
    initializer.__qualname__ = f"{cls.__qualname__}.__init__"
    return initializer


def _show(value: object, sensitive: bool) -> str:
    if sensitive and value:
        return "<hidden>"
    if isinstance(value, bytes | bytearray | memoryview) and len(value) > _REPR_BYTES_MAX:
        return f"<{len(value)} bytes {bytes(value[:_REPR_BYTES_MAX])!r}...>"
    return repr(bytes(value)) if isinstance(value, memoryview) else repr(value)
