"""The slow codec: it walks the declarations field by field, and is meant to be obviously right.

The compiled codec is tested against it byte for byte, and calls it when something is wrong with a message, because only
this one knows which field it was. Nothing here is tuned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.base.errors import DecodeError, EncodeError
from ottla.wire import primitives as p
from ottla.wire.fields import Field, show_versions
from ottla.wire.primitives import Buffer

_READERS = {kind: getattr(p, f"read_{kind}") for kind in p.FIXED_FORMATS}
_WRITERS = {kind: getattr(p, f"write_{kind}") for kind in p.FIXED_FORMATS}

_EXCERPT_BEFORE = 8
_EXCERPT_BYTES = 24


def excerpt(buffer: Buffer, position: int) -> str:
    """The bytes around a position in hex, with a caret under the byte in question."""
    start = max(0, min(position, len(buffer)) - _EXCERPT_BEFORE)
    shown = bytes(buffer[start : start + _EXCERPT_BYTES])
    more = " ..." if start + _EXCERPT_BYTES < len(buffer) else " (end)"
    label = f"{start:06d}  "
    return f"{label}{shown.hex(' ')}{more}\n{' ' * (len(label) + 3 * (position - start))}^^"


def located(error: DecodeError, buffer: Buffer, path: str) -> DecodeError:
    """The same error, with the field's path and an excerpt of the message."""
    return DecodeError(error.reason, path=path, position=error.position, excerpt=excerpt(buffer, error.position))


# --- decoding -------------------------------------------------------------------------------------------------------


def decode(cls: type[Any], buffer: Buffer, version: int, position: int, flexible: bool) -> tuple[Any, int]:
    return _Decoder(buffer, version, flexible).read_struct(cls, position, "")


class _Decoder:
    def __init__(self, buffer: Buffer, version: int, flexible: bool) -> None:
        self.buffer = buffer
        self.version = version
        self.flexible = flexible

    def read_struct(self, cls: type[Any], position: int, path: str) -> tuple[Any, int]:
        values = {}
        tagged = {}
        for field in cls.FIELDS:
            if self.version not in field.versions:
                continue
            if self.version in field.tagged:
                tagged[field.tag] = field
                continue
            values[field.name], position = self.read_field(field, position, _join(path, field.name))
        if self.flexible:
            position = self.read_tags(tagged, values, position, path)
        return cls(**values), position

    def read_tags(self, tagged: dict[int, Field], values: dict[str, Any], position: int, path: str) -> int:
        where = _join(path, "(tagged fields)")
        count, position = self._at(where, p.read_unsigned_varint, position)
        for _ in range(count):
            tag, position = self._at(where, p.read_unsigned_varint, position)
            size, start = self._at(where, p.read_unsigned_varint, position)
            end = start + size
            if end > len(self.buffer):
                raise located(DecodeError(f"tag {tag} announces {size} bytes", position=position), self.buffer, where)
            position = end
            field = tagged.get(tag)
            if field is None:
                continue
            inner = _join(path, field.name)
            values[field.name], after = self.read_field(field, start, inner, in_tag=True)
            if after != end:
                reason = f"the value takes {after - start} bytes, its tag announces {size}"
                raise located(DecodeError(reason, position=start), self.buffer, inner)
        return position

    def read_field(self, field: Field, position: int, path: str, *, in_tag: bool = False) -> tuple[Any, int]:
        nullable = self.version in field.nullable
        if field.kind == "struct":
            return self._read_struct_field(field, position, path, nullable, in_tag)
        value, after = self._read_value(field, position, path)
        if value is None and not nullable:
            raise located(DecodeError("may not be null", position=position), self.buffer, path)
        return value, after

    def _read_struct_field(
        self, field: Field, position: int, path: str, nullable: bool, in_tag: bool
    ) -> tuple[Any, int]:
        if nullable:
            start = position
            marker, position = self._at(path, p.read_unsigned_varint if in_tag else p.read_int8, position)
            if marker == (0 if in_tag else -1):
                return None, position
            if marker != 1:
                raise located(
                    DecodeError(f"{marker} marks neither null nor a struct", position=start), self.buffer, path
                )
        return self.read_struct(field.of, position, path)

    def _read_value(self, field: Field, position: int, path: str) -> tuple[Any, int]:
        compact = self.flexible and field.compact
        match field.kind:
            case "string":
                return self._at(path, p.read_string, position, compact=compact)
            case "bytes":
                return self._at(path, p.read_bytes, position, compact=compact)
            case "records":
                return self._at(path, p.read_view, position, compact=compact)
            case "array":
                count, position = self._at(path, p.read_array_count, position, compact=compact)
                if count is None:
                    return None, position
                items = []
                for index in range(count):
                    item, position = self.read_field(field.of, position, f"{path}[{index}]")
                    items.append(item)
                return items, position
        return self._at(path, _READERS[field.kind], position)

    def _at(self, path: str, read: Callable[..., tuple[Any, int]], position: int, **options: bool) -> tuple[Any, int]:
        try:
            return read(self.buffer, position, **options)
        except DecodeError as e:
            raise located(e, self.buffer, path) from e


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


# --- encoding -------------------------------------------------------------------------------------------------------


class _NamedEncodeError(EncodeError):
    """An EncodeError whose text names the field already."""


def encode(message: Any, version: int, flexible: bool) -> bytes:
    return _Encoder(version, flexible).struct(message, "")


def _is_default(field: Field, value: Any) -> bool:
    if field.kind == "array" and value is not None and field.default is not None:
        return len(value) == 0
    return bool(value == field.new_default())


class _Encoder:
    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible

    def struct(self, value: Any, path: str) -> bytes:
        out = []
        tagged = []
        for field in value.FIELDS:
            item = getattr(value, field.name)
            inner = _join(path, field.name)
            if self.version not in field.versions:
                if not field.ignorable and not _is_default(field, item):
                    known = show_versions(field.versions)
                    raise _NamedEncodeError(f"{inner} exists in versions {known}, not {self.version}")
            elif self.version not in field.tagged:
                out.append(self.field(field, item, inner))
            elif not _is_default(field, item):
                tagged.append((field.tag, self.field(field, item, inner, in_tag=True)))
        if self.flexible:
            out.append(p.write_unsigned_varint(len(tagged)))
            for tag, payload in sorted(tagged):
                out += (p.write_unsigned_varint(tag), p.write_unsigned_varint(len(payload)), payload)
        return b"".join(out)

    def field(self, field: Field, value: Any, path: str, *, in_tag: bool = False) -> bytes:
        nullable = self.version in field.nullable
        if value is None and not nullable:
            raise _NamedEncodeError(f"{path} may not be null in version {self.version}")
        try:
            if field.kind != "struct":
                return self._value(field, value, path)
            marker = self._struct_marker(value, in_tag) if nullable else b""
            return marker if value is None else marker + self.struct(value, path)
        except _NamedEncodeError:
            raise
        except EncodeError as e:
            raise _NamedEncodeError(f"{path}: {e}") from e
        except (TypeError, AttributeError) as e:
            raise _NamedEncodeError(f"{path}: {type(value).__name__} is not what this field holds ({e})") from e

    def _struct_marker(self, value: Any, in_tag: bool) -> bytes:
        if in_tag:
            return p.write_unsigned_varint(0 if value is None else 1)
        return p.write_int8(-1 if value is None else 1)

    def _value(self, field: Field, value: Any, path: str) -> bytes:
        compact = self.flexible and field.compact
        match field.kind:
            case "string":
                return p.write_string(value, compact=compact)
            case "bytes" | "records":
                return p.write_bytes(value, compact=compact)
            case "array":
                if value is None:
                    return p.write_length(None, compact=compact)
                items = [self.field(field.of, item, f"{path}[{i}]") for i, item in enumerate(value)]
                return p.write_length(len(items), compact=compact) + b"".join(items)
        written: bytes = _WRITERS[field.kind](value)
        return written
