"""What a compaction or deletion had begun when the process stopped is finished or undone at the next start."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.log.swap import finish_swaps
from ottla.records.builder import build_batch

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")


def name(offset: int, suffix: str) -> str:
    return f"{offset:020}{suffix}"


def segment(directory: Path, first: int, count: int, ending: str = "") -> None:
    """Files of a segment of single-record batches; their content names them."""
    batches = b"".join(build_batch([(None, b"v", (), 1)], base_offset=first + index) for index in range(count))
    for suffix in SUFFIXES:
        content = batches if suffix == ".log" else f"{first}{ending}".encode()
        (directory / (name(first, suffix) + ending)).write_bytes(content)


def left(directory: Path) -> dict[str, str]:
    """Names, and whether the files are those that were swapped in."""
    return {
        path.name: "new" if path.suffix != ".log" and path.read_bytes().endswith(b".swap") else ""
        for path in sorted(directory.iterdir())
    }


def names(*offsets: int) -> set[str]:
    return {name(offset, suffix) for offset in offsets for suffix in SUFFIXES}


def test_a_complete_segment_replaces_those_whose_offsets_it_covers(tmp_path: Path) -> None:
    for first in (0, 10, 20):
        segment(tmp_path, first, 10)
    segment(tmp_path, 0, 20, ".swap")
    finish_swaps(tmp_path)
    found = left(tmp_path)
    assert set(found) == names(0, 20)
    assert {file for file, kind in found.items() if kind == "new"} == {name(0, suffix) for suffix in SUFFIXES[1:]}


def test_the_segment_after_its_last_offset_stays(tmp_path: Path) -> None:
    for first in (0, 10, 11):
        segment(tmp_path, first, 1)
    segment(tmp_path, 0, 11, ".swap")
    finish_swaps(tmp_path)
    assert set(left(tmp_path)) == names(0, 11)


@pytest.mark.parametrize("tail", [b"\0" * 200, b"\0" * 10])
def test_an_end_that_is_no_batch_covers_nothing(tmp_path: Path, tail: bytes) -> None:
    for first in (0, 10, 20):
        segment(tmp_path, first, 10)
    segment(tmp_path, 0, 20, ".swap")
    swapped = tmp_path / name(0, ".log.swap")
    swapped.write_bytes(swapped.read_bytes() + tail)
    finish_swaps(tmp_path)
    assert set(left(tmp_path)) == names(0, 20)


def test_an_empty_segment_replaces_only_that_of_its_own_offset(tmp_path: Path) -> None:
    for first in (0, 1):
        segment(tmp_path, first, 1)
    (tmp_path / name(0, ".log.swap")).write_bytes(b"")
    finish_swaps(tmp_path)
    assert set(left(tmp_path)) == {name(0, ".log")} | names(1)


@pytest.mark.parametrize(("cleaned", "survives"), [(0, False), (10, False), (11, True)])
def test_what_was_made_together_with_an_incomplete_segment_is_not_used(
    tmp_path: Path, cleaned: int, survives: bool
) -> None:
    for first in (0, 10):
        segment(tmp_path, first, 10)
    segment(tmp_path, 10, 10, ".swap")
    (tmp_path / name(cleaned, ".log.cleaned")).write_bytes(b"")
    finish_swaps(tmp_path)
    found = left(tmp_path)
    assert set(found) == names(0, 10)
    assert any(kind == "new" for kind in found.values()) is survives


def test_what_was_on_its_way_out_goes(tmp_path: Path) -> None:
    segment(tmp_path, 0, 1)
    for leftover in (name(5, ".log.deleted"), "leader-epoch-checkpoint.tmp", name(7, ".index.cleaned")):
        (tmp_path / leftover).write_bytes(b"")
    (tmp_path / "partition.metadata").write_bytes(b"")
    finish_swaps(tmp_path)
    assert set(left(tmp_path)) == names(0) | {"partition.metadata"}
