"""Tagged fields by hand: what was written is skipped to the byte, and a section that lies is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import DecodeError
from ottla.wire.decoder_source import MalformedError
from ottla.wire.fused.tags import skip_tags, tag_section
from ottla.wire.primitives import read_unsigned_varint

TAGS = st.dictionaries(st.integers(0, 2**31 - 1), st.binary(max_size=300), max_size=5).map(lambda d: sorted(d.items()))


@given(tags=TAGS, before=st.binary(max_size=5), after=st.binary(max_size=5))
def test_a_section_is_skipped_to_its_end(tags: list[tuple[int, bytes]], before: bytes, after: bytes) -> None:
    section = tag_section(tags)
    assert skip_tags(memoryview(before + section + after), len(before)) == len(before) + len(section)


@given(tags=TAGS)
def test_a_section_holds_its_tags_in_order(tags: list[tuple[int, bytes]]) -> None:
    section = memoryview(tag_section(tags))
    count, position = read_unsigned_varint(section, 0)
    found = []
    for _ in range(count):
        tag, position = read_unsigned_varint(section, position)
        size, position = read_unsigned_varint(section, position)
        found.append((tag, bytes(section[position : position + size])))
        position += size
    assert found == tags
    assert position == len(section)


@given(tags=TAGS.filter(bool), data=st.data())
def test_a_section_that_ends_early_is_an_error(tags: list[tuple[int, bytes]], data: st.DataObject) -> None:
    section = tag_section(tags)
    cut = data.draw(st.integers(0, len(section) - 1))
    with pytest.raises((MalformedError, DecodeError, IndexError)):
        skip_tags(memoryview(section[:cut]), 0)
