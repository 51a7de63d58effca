"""Writes the source of one struct's encoder, the mirror image of the decoder's: fixed-size runs become one `pack`."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ottla.base.errors import EncodeError
from ottla.wire.fields import IMPLIED, Field
from ottla.wire.primitives import FIXED_FORMATS, SMALL_UVARINTS, STRING_BYTES_MAX, write_unsigned_varint

StructCodec = Callable[[type[Any], int, bool], Callable[..., Any]]


class EncoderSource:
    def __init__(self, cls: type[Any], version: int, flexible: bool, codec_of: StructCodec) -> None:
        self.cls = cls
        self.version = version
        self.flexible = flexible
        self.codec_of = codec_of
        self.names: dict[str, Any] = {
            "EncodeError": EncodeError,
            "SMALL": SMALL_UVARINTS,
            "write_uvarint": write_unsigned_varint,
            "pack": struct.pack,
        }
        self.lines: list[str] = []
        self.indent = 1
        self.run_formats = ""
        self.run_values: list[str] = []
        self.serial = 0

    def compile(self) -> Callable[..., Any]:
        tagged = []
        for field in self.cls.FIELDS:
            if self.version not in field.versions:
                self.refuse_lost_value(field)
            elif self.version in field.tagged:
                tagged.append(field)
        for field in self.cls.FIELDS:
            if self.version in field.versions and field not in tagged:
                self.field(field)
        if self.flexible:
            self.tags(sorted(tagged, key=lambda f: f.tag or 0))
        self.flush()
        self.line("return")
        body = "\n".join(self.lines)
        source = f"def encode(o, append):\n{body}\n"
        exec(compile(source, f"<encoder of {self.cls.__name__} v{self.version}>", "exec"), self.names)
        encode: Callable[..., Any] = self.names["encode"]
        return encode

    # --- pieces of source ---

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def bind(self, stem: str, value: Any) -> str:
        name = f"{stem}_{len(self.names)}"
        self.names[name] = value
        return name

    def local(self, stem: str) -> str:
        """A new local name: a value's length may wait in a run while later fields are looked at."""
        self.serial += 1
        return f"{stem}{self.serial}"

    def run(self, form: str, value: str) -> None:
        self.run_formats += form
        self.run_values.append(value)

    def flush(self) -> None:
        if self.run_values:
            layout = struct.Struct(">" + self.run_formats)
            self.line(f"append({self.bind('pack', layout.pack)}({', '.join(self.run_values)}))")
            self.run_formats = ""
            self.run_values = []

    def uvarint(self, expression: str) -> None:
        self.flush()
        self.line(f"append(SMALL[{expression}] if {expression} < 128 else write_uvarint({expression}))")

    def differs(self, field: Field, value: str) -> str:
        """The test whether a value is not its field's default."""
        if field.default is not IMPLIED:
            return f"{value} != {self.bind('default', field.default)}"
        # A list is compared by truth plus null: the implied default of an array is the empty one.
        if field.kind == "array":
            return f"({value} or {value} is None)"
        return f"{value} != {self.bind('default', field.of())}"

    def refuse_lost_value(self, field: Field) -> None:
        if not field.ignorable:
            message = f"{field.name} does not exist in version {self.version}"
            self.line(f"if {self.differs(field, f'o.{field.name}')}: raise EncodeError({message!r})")

    # --- fields ---

    def field(self, field: Field, *, in_tag: bool = False) -> None:
        value = f"o.{field.name}"
        if field.kind in FIXED_FORMATS:
            if field.kind == "uuid":
                self.line(f"if len({value}) != 16: raise EncodeError('uuid')")
            self.run(FIXED_FORMATS[field.kind], value)
        elif field.kind == "struct":
            self.struct_field(field, value, in_tag)
        elif field.kind == "array":
            self.array_field(field, value)
        else:
            self.sized(field, value, self.version in field.nullable)

    def sized(self, field: Field, value: str, nullable: bool) -> None:
        """A string, bytes or records."""
        data, n = self.local("data"), self.local("n")
        self.line(f"{data} = {value}")
        if nullable:
            self.line(f"if {data} is None: {data} = b''; {n} = -1")
            self.line("else:")
            self.indent += 1
        if field.kind == "string":
            self.line(f"{data} = {data}.encode()")
        self.line(f"{n} = len({data})")
        if field.kind == "string":
            self.line(f"if {n} > {STRING_BYTES_MAX}: raise EncodeError('string')")
        if nullable:
            self.indent -= 1
        self.length(field, n, "h" if field.kind == "string" else "i")
        self.line(f"append({data})")

    def length(self, field: Field, n: str, form: str) -> None:
        if self.flexible and field.compact:
            self.line(f"{n} += 1")
            self.uvarint(n)
        else:
            self.run(form, n)
            self.flush()

    def struct_field(self, field: Field, value: str, in_tag: bool) -> None:
        codec = self.bind("encode", self.codec_of(field.of, self.version, self.flexible))
        if self.version not in field.nullable:
            self.flush()
            self.line(f"{codec}({value}, append)")
            return
        self.flush()
        null = "0" if in_tag else "255"
        self.line(f"if {value} is None: append(bytes(({null},)))")
        self.line("else:")
        self.line("    append(b'\\x01')")
        self.line(f"    {codec}({value}, append)")

    def array_field(self, field: Field, value: str) -> None:
        items, n = self.local("items"), self.local("n")
        self.line(f"{items} = {value}")
        if self.version in field.nullable:
            self.line(f"if {items} is None: {items} = (); {n} = -1")
            self.line(f"else: {n} = len({items})")
        else:
            self.line(f"{n} = len({items})")
        self.length(field, n, "i")
        self.elements(field.of, items)

    def elements(self, element: Field, items: str) -> None:
        if element.kind in FIXED_FORMATS:
            if element.kind == "uuid":
                self.line(f"if any(len(item) != 16 for item in {items}): raise EncodeError('uuid')")
            form = FIXED_FORMATS[element.kind]
            self.line(f"append(pack('>' + {form!r} * len({items}), *{items}))")
        elif element.kind == "struct":
            codec = self.bind("encode", self.codec_of(element.of, self.version, self.flexible))
            self.line(f"for item in {items}: {codec}(item, append)")
        else:
            self.line(f"for item in {items}:")
            self.indent += 1
            self.sized(element, "item", False)
            self.indent -= 1

    def tags(self, tagged: list[Field]) -> None:
        if not tagged:
            self.run("B", "0")
            return
        self.flush()
        self.line("tags = []")
        for field in tagged:
            self.line(f"if {self.differs(field, f'o.{field.name}')}:")
            self.indent += 1
            self.line("payload = []")
            self.line("outer = append; append = payload.append")
            self.field(field, in_tag=True)
            self.flush()
            self.line("append = outer; payload = b''.join(payload)")
            self.line(f"tags += (write_uvarint({field.tag}), write_uvarint(len(payload)), payload)")
            self.indent -= 1
        self.line("append(write_uvarint(len(tags) // 3))")
        self.line("for piece in tags: append(piece)")
