"""Small files that are replaced as a whole: what is written comes back, and what is garbled is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.types import NIL_UUID, TopicPartition, Uuid
from ottla.log.checkpoints import (
    CheckpointError,
    read_offsets,
    read_partition_metadata,
    read_properties,
    read_rows,
    replace_file,
    write_offsets,
    write_partition_metadata,
    write_properties,
    write_rows,
)

A, B = TopicPartition("a", 10), TopicPartition("b", 2)
TOPIC_ID = Uuid(bytes(range(16)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


@pytest.mark.parametrize("sync", [True, False])
def test_a_file_is_replaced_as_a_whole_and_leaves_nothing_beside_it(path: Path, sync: bool) -> None:
    for data in (b"x" * 100_000, b"short", b""):
        replace_file(path, data, sync=sync)
        assert path.read_bytes() == data
        assert [found.name for found in path.parent.iterdir()] == ["checkpoint"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_offsets_have_kafkas_form_and_order(path: Path) -> None:
    assert read_offsets(path) == {}
    write_offsets(path, {B: 7, A: -1, TopicPartition("a", 9): 2**62})
    assert path.read_text() == f"0\n3\na 9 {2**62}\na 10 -1\nb 2 7\n"
    assert read_offsets(path) == {B: 7, A: -1, TopicPartition("a", 9): 2**62}
    write_offsets(path, {}, sync=False)
    assert (path.read_text(), read_offsets(path)) == ("0\n0\n", {})


@given(rows=st.lists(st.lists(st.text("abc0-", min_size=1), min_size=2, max_size=2)))
def test_rows_come_back(tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]]) -> None:
    path = tmp_path_factory.getbasetemp() / "rows"
    write_rows(path, [" ".join(row) for row in rows], sync=False)
    assert read_rows(path, 2) == rows


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b"0\n1\na b\n", [["a", "b"]]),
        (b" 0 \n 1 \n\n  a   b  \n\n", [["a", "b"]]),
        (b"0\n0", []),
        (b"0\n0\n", []),
    ],
)
def test_blanks_do_no_harm(path: Path, content: bytes, rows: list[list[str]]) -> None:
    path.write_bytes(content)
    assert read_rows(path, 2) == rows


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "version and a count"),
        (b"0\n", "version and a count"),
        (b"1\n0\n", "version and a count"),
        (b"0\n-1\n", "version and a count"),
        (b"0\nx\n", "version and a count"),
        (b"0\n1\n", "the 1 rows"),
        (b"0\n1\na b\nc d\n", "the 1 rows"),
        (b"0\n2\na b\n", "the 2 rows"),
        (b"0\n1\na\n", "the 1 rows"),
        (b"0\n1\na b c\n", "the 1 rows"),
        (b"0\n2\na b\nc\n", "the 2 rows"),
        (b"\xff\xfe", "is not text"),
    ],
)
def test_rows_that_are_not_as_announced_are_refused(path: Path, content: bytes, words: str) -> None:
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=words):
        read_rows(path, 2)


def test_without_a_file_there_are_no_rows(path: Path) -> None:
    assert read_rows(path, 2) is None


@pytest.mark.parametrize("row", ["a x 1", "a 1 x"])
def test_offsets_are_numbers(path: Path, row: str) -> None:
    write_rows(path, [row])
    with pytest.raises(CheckpointError, match="no number"):
        read_offsets(path)


def test_the_id_of_a_partitions_topic(tmp_path: Path) -> None:
    assert read_partition_metadata(tmp_path) == NIL_UUID, "Kafka before 2.8 wrote none"
    write_partition_metadata(tmp_path, TOPIC_ID)
    assert (tmp_path / "partition.metadata").read_text() == "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert read_partition_metadata(tmp_path) == TOPIC_ID


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", "has version 1"),
        (b"topic_id: AAECAwQFBgcICQoLDA0ODw", "no topic id"),
        (b"version: 0\n", "no topic id"),
        (b"version: 0\ntopic_id: ?", "no topic id"),
        (b"", "no topic id"),
        (b"\xff", "is not text"),
    ],
)
def test_an_id_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "partition.metadata").write_bytes(content)
    with pytest.raises(CheckpointError, match=words):
        read_partition_metadata(tmp_path)


def test_properties(path: Path) -> None:
    assert read_properties(path) is None
    write_properties(path, {"b": "1=2", "a": ""})
    assert path.read_text() == "b=1=2\na=\n"
    assert read_properties(path) == {"b": "1=2", "a": ""}
    path.write_text("#Mon Jan 01\n!note\n\n  c = d e \nc=f")
    assert read_properties(path) == {"c": "f"}


@pytest.mark.parametrize(("content", "words"), [(b"a=1\nb\n", "no property: 'b'"), (b"\xff=", "is not text")])
def test_properties_that_are_none_are_refused(path: Path, content: bytes, words: str) -> None:
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=words):
        read_properties(path)
