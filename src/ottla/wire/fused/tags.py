"""Skipping and writing tagged fields by hand."""

from __future__ import annotations

from ottla.wire.decoder_source import MalformedError
from ottla.wire.primitives import read_unsigned_varint, write_unsigned_varint


def skip_tags(view: memoryview, position: int) -> int:
    """The position after the tag section at `position`. Fused decoders call it only when the section is not empty."""
    count, position = read_unsigned_varint(view, position)
    for _ in range(count):
        _, position = read_unsigned_varint(view, position)
        size, position = read_unsigned_varint(view, position)
        if size > len(view) - position:
            raise MalformedError
        position += size
    return position


def tag_section(tags: list[tuple[int, bytes]]) -> bytes:
    """A tag section of (tag, payload) in ascending order."""
    out = [write_unsigned_varint(len(tags))]
    for tag, payload in tags:
        out += (write_unsigned_varint(tag), write_unsigned_varint(len(payload)), payload)
    return b"".join(out)
