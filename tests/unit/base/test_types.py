"""Plain values and their texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.types import NIL_UUID, TopicPartition, Uuid, uuid_from_text, uuid_to_text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("AAAAAAAAAAAAAAAAAAAAAA", bytes(16)),
        ("AAAAAAAAAAAAAAAAAAAAAQ", bytes(15) + b"\x01"),
        ("_____________________w", b"\xff" * 16),
        ("-_-_-_-_-_-_-_-_-_-_-w", bytes.fromhex("fbffbffbffbffbffbffbffbffbffbffb")),
    ],
)
def test_the_text_of_an_id_is_url_safe_base64_without_padding(text: str, value: bytes) -> None:
    assert uuid_to_text(Uuid(value)) == text
    assert uuid_from_text(text) == value


@given(st.binary(min_size=16, max_size=16))
def test_every_id_comes_back_from_its_text(value: bytes) -> None:
    assert uuid_from_text(uuid_to_text(Uuid(value))) == value


@pytest.mark.parametrize(
    "text",
    ["", "AAAA", "A" * 20, "A" * 21, "A" * 24, "+" * 22, "A" * 21 + "/", " " * 22, "A" * 11 + "!" + "A" * 11, "Ä" * 22],
)
def test_other_texts_are_no_ids(text: str) -> None:
    with pytest.raises(ValueError, match=r"uuid|ASCII"):
        uuid_from_text(text)


def test_no_id_is_sixteen_zeros() -> None:
    assert bytes(16) == NIL_UUID
    assert uuid_to_text(NIL_UUID) == "A" * 22


def test_a_partition_is_written_with_a_dash() -> None:
    assert str(TopicPartition("a-b", 3)) == "a-b-3"
