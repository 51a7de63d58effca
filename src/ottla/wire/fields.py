"""How one field of a message is declared: its type, and the versions it exists, may be null, or is tagged in.

The functions below (`int32`, `string`, `array`, ...) stand on the right-hand side of a field's declaration. They
describe; they neither read nor write bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypedDict, Unpack

from ottla.base.types import NIL_UUID

VERSION_MAX: Final = 32_767
NO_VERSIONS: Final = range(0)


class _Implied:
    """The default of a field that names none: the zero of its type."""


IMPLIED: Final = _Implied()

_ZEROS: dict[str, object] = {
    "boolean": False,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": NIL_UUID,
}


def parse_versions(text: str) -> range:
    """`"3+"`, `"0-2"`, `"4"` or `"none"` as a range of versions."""
    if text == "none":
        return NO_VERSIONS
    first, dash, last = text.partition("-")
    if dash:
        return range(int(first), int(last) + 1)
    if text.endswith("+"):
        return range(int(text[:-1]), VERSION_MAX + 1)
    return range(int(text), int(text) + 1)


def show_versions(versions: range) -> str:
    if not versions:
        return "none"
    if versions.stop > VERSION_MAX:
        return f"{versions.start}+"
    return str(versions.start) if len(versions) == 1 else f"{versions.start}-{versions.stop - 1}"


class Options(TypedDict, total=False):
    """What every declaration may say.

    `ignorable` fields are dropped in a version that lacks them; any other field with a value of its own cannot be sent
    in such a version. `sensitive` fields never show in a repr.
    """

    versions: str
    nullable: str
    tag: int
    tagged: str
    default: Any
    ignorable: bool
    sensitive: bool
    compact: bool


class Field:
    """One declared field; `name` is filled in when its class is made."""

    __slots__ = (
        "compact",
        "default",
        "ignorable",
        "kind",
        "name",
        "nullable",
        "of",
        "sensitive",
        "tag",
        "tagged",
        "versions",
    )

    def __init__(self, kind: str, of: Any = None, **options: Unpack[Options]) -> None:
        self.name = ""
        self.kind = kind
        self.of = of
        """The struct class of a struct; the element's Field of an array."""
        self.tag = options.get("tag")
        self.tagged = parse_versions(options.get("tagged", "none"))
        self.versions = parse_versions(options["versions"]) if "versions" in options else self.tagged or range(1 << 15)
        self.nullable = parse_versions(options.get("nullable", "none"))
        self.ignorable = options.get("ignorable", False)
        self.sensitive = options.get("sensitive", False)
        self.compact = options.get("compact", True)
        """False only for the client id of the request header, which keeps its old form in flexible versions."""
        self.default: object = options.get("default", IMPLIED)
        if self.default is IMPLIED and kind not in ("array", "struct"):
            self.default = _ZEROS.get(kind, 0)

    def new_default(self) -> Any:
        """The default as a value of its own: nobody else holds the list or struct."""
        if self.default is not IMPLIED:
            return self.default
        return [] if self.kind == "array" else self.of()

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name} {show_versions(self.versions)}>"


def boolean(**options: Unpack[Options]) -> Any:
    return Field("boolean", **options)


def int8(**options: Unpack[Options]) -> Any:
    return Field("int8", **options)


def int16(**options: Unpack[Options]) -> Any:
    return Field("int16", **options)


def uint16(**options: Unpack[Options]) -> Any:
    return Field("uint16", **options)


def int32(**options: Unpack[Options]) -> Any:
    return Field("int32", **options)


def uint32(**options: Unpack[Options]) -> Any:
    return Field("uint32", **options)


def int64(**options: Unpack[Options]) -> Any:
    return Field("int64", **options)


def float64(**options: Unpack[Options]) -> Any:
    return Field("float64", **options)


def uuid(**options: Unpack[Options]) -> Any:
    return Field("uuid", **options)


def string(**options: Unpack[Options]) -> Any:
    return Field("string", **options)


def bytes_(**options: Unpack[Options]) -> Any:
    return Field("bytes", **options)


def records(**options: Unpack[Options]) -> Any:
    """Record batches: decoded as a view of the buffer, never copied."""
    return Field("records", **options)


def struct(of: type, **options: Unpack[Options]) -> Any:
    return Field("struct", of, **options)


def array(of: type | Callable[..., Any], **options: Unpack[Options]) -> Any:
    """An array of a struct class, or of a primitive named by its own function: `array(int32)`."""
    element = Field("struct", of) if isinstance(of, type) else of()
    return Field("array", element, **options)
