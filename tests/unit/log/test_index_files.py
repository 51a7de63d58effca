"""Index files as files: when they are read, written, synced, renamed and forgotten."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ottla.log.offset_index import OffsetIndex
from ottla.log.time_index import TimeIndex
from ottla.log.transaction_index import AbortedTransaction, TransactionIndex
from tests.own_thread import patch_own_thread

ENTRY_BYTES = 34


def aborted(number: int) -> AbortedTransaction:
    return AbortedTransaction(number, 10 * number, 10 * number + 5, 10 * number + 6)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    patch_own_thread(monkeypatch, os, "fdatasync", lambda fd: found.append(os.readlink(f"/proc/self/fd/{fd}")))
    return found


def test_aborted_transactions_are_written_behind_those_that_are_there(tmp_path: Path) -> None:
    path = tmp_path / "i.txnindex"
    for number in range(1, 5):
        index = TransactionIndex(path, 0)
        index.append(aborted(number))
        assert path.exists() is (number > 1), "not before somebody asks"
        index.write_pending()
        index.write_pending()
        assert path.stat().st_size == number * ENTRY_BYTES
    assert TransactionIndex(path, 0).entries() == [aborted(number) for number in range(1, 5)]
    assert path.stat().st_mode & 0o777 == 0o644


def test_nothing_is_written_or_synced_that_nobody_has_read(tmp_path: Path, synced: list[str]) -> None:
    path = tmp_path / "i.txnindex"
    index = TransactionIndex(path, 0)
    index.write_pending()
    index.sync()
    index.create()
    index.sync()
    index.append(aborted(1))
    index.sync()
    assert str(path) not in synced and not path.exists()
    index.write_pending()
    index.sync()
    assert synced.count(str(path)) == 1
    index.release()
    index.sync()
    assert synced.count(str(path)) == 1


@pytest.mark.parametrize(("offset", "left"), [(0, 0), (15, 0), (16, 1), (25, 1), (26, 2), (35, 2), (36, 3), (99, 3)])
@pytest.mark.parametrize("written", range(4))
def test_markers_at_or_above_an_offset_are_forgotten(tmp_path: Path, written: int, offset: int, left: int) -> None:
    path = tmp_path / "i.txnindex"
    index = TransactionIndex(path, 0)
    for number in range(1, 4):
        index.append(aborted(number))
        if number == written:
            index.write_pending()
    index.truncate_to(offset)
    assert index.entries() == [aborted(number) for number in range(1, left + 1)]
    if written:
        assert path.stat().st_size == min(written, left) * ENTRY_BYTES
    index.append(aborted(7))
    index.write_pending()
    assert TransactionIndex(path, 0).entries() == [*(aborted(number) for number in range(1, left + 1)), aborted(7)]


def test_an_index_without_a_file_has_another_name_all_the_same(tmp_path: Path) -> None:
    index = TransactionIndex(tmp_path / "old", 0)
    index.rename(tmp_path / "new")
    assert index.path == tmp_path / "new" and list(tmp_path.iterdir()) == []
    index.ensure_file()
    index.ensure_file()
    assert index.path.read_bytes() == b""
    index.rename(tmp_path / "newer")
    assert [path.name for path in tmp_path.iterdir()] == ["newer"]
    index.append(aborted(1))
    index.write_pending()
    index.create()
    assert index.entries() == [] and list(tmp_path.iterdir()) == []
    index.append(aborted(2))
    index.write_pending()
    assert TransactionIndex(tmp_path / "newer", 0).entries() == [aborted(2)]


@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex])
def test_an_index_is_synced_and_renamed(
    tmp_path: Path, synced: list[str], kind: type[OffsetIndex] | type[TimeIndex]
) -> None:
    index = kind(tmp_path / "old", 0, 120)
    index.create()
    index.sync()
    index.rename(tmp_path / "new")
    index.sync()
    assert [synced.count(str(tmp_path / name)) for name in ("old", "new")] == [1, 1]
    assert (index.path, [path.name for path in tmp_path.iterdir()]) == (tmp_path / "new", ["new"])
    with pytest.raises(FileNotFoundError):
        kind(tmp_path / "old", 0, 120).sync()


def test_an_index_is_mapped_once_it_is_asked_for(tmp_path: Path) -> None:
    index = OffsetIndex(tmp_path / "i", 0, 80)
    index.create()
    for number in range(1, 4):
        index.append(number, 10 * number)
    index.seal()
    mapped = index.entries()
    assert index.entries() is mapped and len(mapped) == 24 and (index.size_bytes, index.entry_count) == (24, 3)
    index.seal()
    assert index.entries() is mapped, "it is sealed already"
    index.reopen_writable()
    writable = index.entries()
    index.reopen_writable()
    assert index.entries() is writable and bytes(writable) == bytes(mapped)
    assert index.path.stat().st_size == 80
    index.truncate_to(3)
    assert (index.entry_count, index.last()) == (2, (2, 20))
    index.write_pending()
    assert index.path.read_bytes()[16:24] == bytes(mapped)[16:24], "what was written stays until it is written over"
    index.seal()
    assert index.path.stat().st_size == 16
