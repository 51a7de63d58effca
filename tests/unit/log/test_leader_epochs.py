"""Leader epochs: the examples of KIP-101 and KIP-279, and the file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.checkpoints import CheckpointError
from ottla.log.leader_epochs import LeaderEpochs
from ottla.log.partition_log import PartitionLog
from tests.own_thread import patch_own_thread
from tests.unit.log.samples import NOW_MS, append, batch, reopen

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "on_disk.json").read_text())


@pytest.fixture
def epochs(tmp_path: Path) -> LeaderEpochs:
    return LeaderEpochs(tmp_path / "leader-epoch-checkpoint")


def assign(epochs: LeaderEpochs, *pairs: tuple[int, int]) -> LeaderEpochs:
    for epoch, start_offset in pairs:
        epochs.assign(epoch, start_offset)
    return epochs


def test_file(epochs: LeaderEpochs) -> None:
    assign(epochs, (0, 0), (3, 1017))
    text = next(item["text"] for item in GOLDEN["items"] if item["what"] == "leader-epoch-checkpoint")
    assert epochs.path.read_text() == text
    again = LeaderEpochs.load(epochs.path.parent)
    assert again is not None
    assert again.entries() == [(0, 0), (3, 1017)]
    assert again.latest_epoch == 3


@pytest.mark.parametrize(
    "text", ["", "0\n", "1\n0\n", "0\n2\n0 0\n", "0\n1\n0\n", "0\n1\nx 0\n", "0\n2\n3 5\n2 9\n", "\0" * 20]
)
def test_files_that_make_no_sense(epochs: LeaderEpochs, text: str) -> None:
    epochs.path.write_text(text)
    with pytest.raises(CheckpointError):
        LeaderEpochs.load(epochs.path.parent)


@pytest.mark.parametrize("text", ["0\n2\n3 5\n3 9\n", "0\n2\n2 9\n3 5\n"])
def test_both_columns_rise(epochs: LeaderEpochs, text: str) -> None:
    epochs.path.write_text(text)
    with pytest.raises(CheckpointError, match="out of order at epoch 3"):
        LeaderEpochs.load(epochs.path.parent)


def test_of_epochs_that_begin_at_the_same_offset_all_but_the_last_have_written_nothing(epochs: LeaderEpochs) -> None:
    epochs.path.write_text("0\n3\n2 5\n3 5\n4 7\n")
    loaded = LeaderEpochs.load(epochs.path.parent)
    assert loaded is not None
    assert loaded.entries() == [(2, 5), (3, 5), (4, 7)]
    assert loaded.epoch_for_offset(5) == 3
    assert loaded.end_offset_for(2, 9) == (2, 5)


def test_the_file_is_left_alone_where_nothing_changes(epochs: LeaderEpochs) -> None:
    assign(epochs, (1, 5), (2, 10))
    before = epochs.path.stat()
    epochs.assign(2, 10)
    epochs.assign(2, 15)
    epochs.truncate_from_start(5)
    epochs.truncate_from_start(3)
    epochs.truncate_from_end(11)
    epochs.take_over(LeaderEpochs(epochs.path, epochs.entries()))
    assert epochs.path.stat() == before, "each change is another file"
    assert epochs.entries() == [(1, 5), (2, 10)]
    epochs.clear()
    assert (epochs.entries(), epochs.latest, epochs.latest_epoch) == ([], None, -1)
    assert epochs.path.read_text() == "0\n0\n"
    emptied = epochs.path.stat()
    epochs.clear()
    assert epochs.path.stat() == emptied


def test_what_another_one_knows_is_taken_over(epochs: LeaderEpochs) -> None:
    other = assign(LeaderEpochs(epochs.path.with_name("other")), (1, 5), (2, 10))
    assign(epochs, (1, 5))
    epochs.take_over(other)
    assert epochs.entries() == [(1, 5), (2, 10)]
    other.clear()
    assert (epochs.entries(), epochs.latest_epoch) == ([(1, 5), (2, 10)], 2)


def test_the_file_is_made_durable_if_there_is_one(epochs: LeaderEpochs, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    patch_own_thread(monkeypatch, os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    epochs.sync()
    assign(epochs, (0, 0))
    assert str(epochs.path) not in synced, "an assignment does not wait for the disk"
    epochs.sync()
    assert synced.count(str(epochs.path)) == 1


def test_no_file(tmp_path: Path) -> None:
    assert LeaderEpochs.load(tmp_path) is None


def test_end_offsets(epochs: LeaderEpochs) -> None:
    assert epochs.end_offset_for(0, 0) == (-1, -1)
    assign(epochs, (2, 10), (4, 20), (7, 30))
    assert epochs.end_offset_for(7, 42) == (7, 42)
    assert epochs.end_offset_for(8, 42) == (-1, -1)
    assert epochs.end_offset_for(-1, 42) == (-1, -1)
    assert epochs.end_offset_for(1, 42) == (1, 10)
    assert epochs.end_offset_for(2, 42) == (2, 20)
    assert epochs.end_offset_for(3, 42) == (2, 20)
    assert epochs.end_offset_for(6, 42) == (4, 30)


def test_fast_leader_changes(tmp_path: Path) -> None:
    """KIP-279: A wrote epoch 1, B epoch 2 that A never saw; B asks A, who leads again in epoch 3."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    a = assign(LeaderEpochs(tmp_path / "a" / "f"), (0, 0), (1, 10), (3, 20))
    b = assign(LeaderEpochs(tmp_path / "b" / "f"), (0, 0), (2, 5))
    answer = a.end_offset_for(b.latest_epoch, log_end_offset=25)
    assert answer == (1, 20)
    # B does not know epoch 1: it cuts to the end of its largest epoch below and asks again.
    own = b.end_offset_for(answer.epoch, log_end_offset=9)
    assert own == (0, 5)
    assert a.end_offset_for(own.epoch, log_end_offset=25) == (0, 10)


def test_new_entries_remove_what_contradicts_them(epochs: LeaderEpochs) -> None:
    assign(epochs, (1, 0), (2, 10), (3, 20))
    epochs.assign(3, 25)
    assert epochs.entries() == [(1, 0), (2, 10), (3, 20)]
    epochs.assign(5, 10)
    assert epochs.entries() == [(1, 0), (5, 10)]
    epochs.assign(3, 12)
    assert epochs.entries() == [(1, 0), (3, 12)]


def test_truncation(epochs: LeaderEpochs) -> None:
    assign(epochs, (1, 0), (2, 10), (3, 20))
    epochs.truncate_from_end(20)
    assert epochs.entries() == [(1, 0), (2, 10)]
    epochs.truncate_from_start(5)
    assert epochs.entries() == [(1, 5), (2, 10)]
    epochs.truncate_from_start(10)
    assert epochs.entries() == [(2, 10)]
    epochs.truncate_from_start(50)
    assert epochs.entries() == [(2, 50)]
    loaded = LeaderEpochs.load(epochs.path.parent)
    assert loaded is not None
    assert loaded.entries() == [(2, 50)]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), max_size=12), st.integers(0, 31))
def test_epoch_of_an_offset(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[int, int]], offset: int
) -> None:
    written = LeaderEpochs(tmp_path_factory.mktemp("epochs") / "f")
    for epoch, start in pairs:
        written.assign(epoch, start)
    kept = written.entries()
    assert kept == sorted(kept)
    assert len({start for _, start in kept}) == len({epoch for epoch, _ in kept}) == len(kept)
    assert written.epoch_for_offset(offset) == max((e for e, start in kept if start <= offset), default=-1)


class TestInALog:
    def test_a_new_epoch_is_known_before_its_first_batch(self, log: PartitionLog) -> None:
        log.begin_leader_epoch(4)
        assert log.epochs.entries() == [(4, 0)]
        log.append_as_leader(batch(), leader_epoch=4, now_ms=NOW_MS)
        log.begin_leader_epoch(4)
        log.begin_leader_epoch(5)
        assert log.epochs.entries() == [(4, 0), (5, 1)]

    @pytest.mark.parametrize("is_clean", [True, False])
    @pytest.mark.parametrize("damage", [None, b"", b"\0" * 30], ids=["gone", "empty", "zeros"])
    def test_the_file_is_found_again_in_the_log(self, log: PartitionLog, is_clean: bool, damage: bytes | None) -> None:
        for epoch in (9, 10, 12):
            for _ in range(3):
                log.append_as_leader(batch(), leader_epoch=epoch, now_ms=NOW_MS)
        if is_clean:
            log.close()
        if damage is None:
            log.epochs.path.unlink()
        else:
            log.epochs.path.write_bytes(damage)
        assert reopen(log, is_clean=is_clean).epochs.entries() == [(9, 0), (10, 3), (12, 6)]

    def test_a_file_that_is_behind_is_completed_after_a_crash(self, log: PartitionLog) -> None:
        for epoch in (9, 10, 12):
            log.append_as_leader(batch(), leader_epoch=epoch, now_ms=NOW_MS)
        log.epochs.path.write_bytes(b"0\n1\n9 0\n")
        assert reopen(log, is_clean=False).epochs.entries() == [(9, 0), (10, 1), (12, 2)]

    def test_epochs_beyond_the_end_are_forgotten(self, log: PartitionLog) -> None:
        append(log)
        log.begin_leader_epoch(4)
        assert reopen(log, is_clean=False).epochs.entries() == [(0, 0)]


def test_an_epoch_that_has_written_nothing_goes_when_the_log_is_cut_to_its_end(log: PartitionLog) -> None:
    """Its leader follows another one now, which does not know of it and would ask for the cut again and again."""
    append(log, batch())
    written, end_offset = log.epochs.entries(), log.log_end_offset
    log.begin_leader_epoch(9)
    assert log.epochs.latest_epoch == 9
    assert not log.truncate_to(end_offset)
    assert log.epochs.entries() == written
    assert log.log_end_offset == end_offset
