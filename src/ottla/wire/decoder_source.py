"""Writes the source of one struct's decoder.

Neighbouring fixed-size fields, and the length that follows them in old encodings, become one `Struct.unpack_from`
straight into the object's attributes. In flexible versions the last run also takes the tag count, which is nearly
always the single byte zero.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ottla.wire.fields import IMPLIED, Field
from ottla.wire.primitives import FIXED_FORMATS, STRING_BYTES_MAX, read_unsigned_varint

StructCodec = Callable[[type[Any], int, bool], Callable[..., Any]]


class MalformedError(ValueError):
    """Raised by generated code; the reference decoder turns it into a DecodeError that names the field."""


def skip_unknown_tag(view: memoryview, position: int, size: int) -> int:
    """A function of its own so that generated code has one place where a tag's end is checked."""
    if size > len(view) - position:
        raise MalformedError
    return position + size


class DecoderSource:
    def __init__(self, cls: type[Any], version: int, flexible: bool, codec_of: StructCodec) -> None:
        self.cls = cls
        self.version = version
        self.flexible = flexible
        self.codec_of = codec_of
        self.names: dict[str, Any] = {
            "cls": cls,
            "new": object.__new__,
            "MalformedError": MalformedError,
            "read_uvarint": read_unsigned_varint,
            "skip_unknown_tag": skip_unknown_tag,
            "unpack_from": struct.unpack_from,
        }
        self.lines: list[str] = []
        self.indent = 1
        self.run_formats = ""
        self.run_targets: list[str] = []

    def compile(self) -> Callable[..., Any]:
        present = [f for f in self.cls.FIELDS if self.version in f.versions]
        in_line = [f for f in present if self.version not in f.tagged]
        tagged = [f for f in present if self.version in f.tagged]
        self.line("o = new(cls)")
        for field in self.cls.FIELDS:
            if field not in in_line:
                self.line(f"o.{field.name} = {self.default(field)}")
        for field in in_line:
            self.field(field)
        if self.flexible:
            self.run("B", "tags")
        self.flush()
        if self.flexible:
            self.tags(tagged)
        self.line("return o, pos")
        body = "\n".join(self.lines)
        source = f"def decode(view, pos):\n{body}\n"
        exec(compile(source, f"<decoder of {self.cls.__name__} v{self.version}>", "exec"), self.names)
        decode: Callable[..., Any] = self.names["decode"]
        return decode

    # --- pieces of source ---

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def bind(self, stem: str, value: Any) -> str:
        name = f"{stem}_{len(self.names)}"
        self.names[name] = value
        return name

    def default(self, field: Field) -> str:
        if field.default is IMPLIED:
            return "[]" if field.kind == "array" else f"{self.bind('struct', field.of)}()"
        return self.bind("default", field.default)

    def run(self, form: str, target: str) -> None:
        self.run_formats += form
        self.run_targets.append(target)

    def flush(self) -> None:
        if not self.run_targets:
            return
        layout = struct.Struct(">" + self.run_formats)
        self.line(f"{', '.join(self.run_targets)}, = {self.bind('layout', layout)}.unpack_from(view, pos)")
        self.line(f"pos += {layout.size}")
        self.run_formats = ""
        self.run_targets = []

    def uvarint(self, target: str) -> None:
        self.flush()
        self.line(f"{target} = view[pos]; pos += 1")
        self.line(f"if {target} > 127: {target}, pos = read_uvarint(view, pos - 1)")

    def length(self, field: Field, form: str) -> None:
        """Leaves the length in `n`; -1 is null."""
        if self.flexible and field.compact:
            self.uvarint("n")
            self.line("n -= 1")
        else:
            self.run(form, "n")
            self.flush()

    def if_null(self, field: Field, target: str) -> None:
        """Opens the branch for a value that is there."""
        if self.version in field.nullable:
            self.line(f"if n == -1: {target} = None")
            self.line("else:")
            self.indent += 1
            self.line("if n < 0: raise MalformedError")
        else:
            self.line("if n < 0: raise MalformedError")

    def end_if_null(self, field: Field) -> None:
        if self.version in field.nullable:
            self.indent -= 1

    # --- fields ---

    def field(self, field: Field, *, in_tag: bool = False) -> None:
        target = f"o.{field.name}"
        if field.kind in FIXED_FORMATS:
            self.run(FIXED_FORMATS[field.kind], target)
        elif field.kind == "struct":
            self.struct_field(field, target, in_tag)
        elif field.kind == "array":
            self.array_field(field, target)
        else:
            self.length(field, "h" if field.kind == "string" else "i")
            self.if_null(field, target)
            self.sized(field.kind, target)
            self.end_if_null(field)

    def sized(self, kind: str, target: str) -> None:
        """A string, bytes or records of `n` bytes."""
        if kind == "string" and self.flexible:
            self.line(f"if n > {STRING_BYTES_MAX}: raise MalformedError")
        self.line("end = pos + n")
        match kind:
            case "string":
                self.line(f"{target} = str(view[pos:end], 'utf-8')")
            case "bytes":
                self.line(f"{target} = bytes(view[pos:end])")
            case _:
                self.line(f"{target} = view[pos:end]")
        self.line("pos = end")

    def struct_field(self, field: Field, target: str, in_tag: bool) -> None:
        self.flush()
        codec = self.bind("decode", self.codec_of(field.of, self.version, self.flexible))
        if self.version not in field.nullable:
            self.line(f"{target}, pos = {codec}(view, pos)")
            return
        if in_tag:
            self.uvarint("n")
        else:
            self.line("n = view[pos]; pos += 1")
        self.line(f"if n == {0 if in_tag else 255}: {target} = None")
        self.line(f"elif n == 1: {target}, pos = {codec}(view, pos)")
        self.line("else: raise MalformedError")

    def array_field(self, field: Field, target: str) -> None:
        self.length(field, "i")
        self.if_null(field, target)
        self.line("if n > len(view) - pos: raise MalformedError")
        element: Field = field.of
        if element.kind in FIXED_FORMATS:
            form = FIXED_FORMATS[element.kind]
            self.line(f"{target} = list(unpack_from('>' + {form!r} * n, view, pos))")
            self.line(f"pos += {struct.calcsize('>' + form)} * n")
        elif element.kind == "struct":
            self.struct_array(element, target)
        else:
            self.line(f"{target} = items = []")
            self.line("for _ in range(n):")
            self.indent += 1
            self.length(element, "h" if element.kind == "string" else "i")
            self.line("if n < 0: raise MalformedError")
            self.sized(element.kind, "item")
            self.line("items.append(item)")
            self.indent -= 1
        self.end_if_null(field)

    def struct_array(self, element: Field, target: str) -> None:
        fixed = self.fixed_layout(element.of)
        self.line(f"{target} = items = []")
        if fixed is None:
            codec = self.bind("decode", self.codec_of(element.of, self.version, self.flexible))
            self.line("for _ in range(n):")
            self.line(f"    item, pos = {codec}(view, pos)")
            self.line("    items.append(item)")
            return
        layout, targets, absent = fixed
        item_cls = self.bind("struct", element.of)
        self.line(f"end = pos + n * {layout.size}")
        self.line("if end > len(view): raise MalformedError")
        self.line(f"for values in {self.bind('layout', layout)}.iter_unpack(view[pos:end]):")
        self.line(f"    item = new({item_cls})")
        self.line(f"    {', '.join(f'item.{name}' for name in targets)}, = values")
        for field in absent:
            self.line(f"    item.{field.name} = {self.default(field)}")
        self.line("    items.append(item)")
        self.line("pos = end")

    def fixed_layout(self, cls: type[Any]) -> tuple[struct.Struct, list[str], list[Field]] | None:
        """The layout of an element whose size never varies; flexible elements end in tags, so theirs does."""
        present = [f for f in cls.FIELDS if self.version in f.versions]
        if self.flexible or not present or any(f.kind not in FIXED_FORMATS for f in present):
            return None
        layout = struct.Struct(">" + "".join(FIXED_FORMATS[f.kind] for f in present))
        return layout, [f.name for f in present], [f for f in cls.FIELDS if f not in present]

    def tags(self, tagged: list[Field]) -> None:
        self.line("if tags:")
        self.indent += 1
        self.line("if tags > 127: tags, pos = read_uvarint(view, pos - 1)")
        self.line("for _ in range(tags):")
        self.indent += 1
        self.line("tag, pos = read_uvarint(view, pos)")
        self.line("size, pos = read_uvarint(view, pos)")
        self.line("tag_end = skip_unknown_tag(view, pos, size)")
        for field in tagged:
            self.line(f"if tag == {field.tag}:")
            self.indent += 1
            self.field(field, in_tag=True)
            self.flush()
            self.line("if pos != tag_end: raise MalformedError")
            self.indent -= 1
        self.line("pos = tag_end")
        self.indent -= 2
