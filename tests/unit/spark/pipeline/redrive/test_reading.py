"""What is read of a topic of letters from one offset to another, whatever brokers bring along. No broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from ottla.base.types import TopicPartition
from ottla.spark.pipeline.redrive import redrive
from ottla.spark.pipeline.redrive.redrive import _read
from ottla.spark.pipeline.redrive.targets import RedriveError

PLACE = TopicPartition("bad", 0)


class Consumer:
    """Each poll brings the next records and moves on to a position."""

    def __init__(self, *polls: tuple[list[int], int]) -> None:
        self.polls = list(polls)
        self.calls: list[object] = []
        self._position = 0

    def assign(self, places: list[TopicPartition]) -> None:
        self.calls.append(places)

    def seek(self, place: TopicPartition, offset: int) -> None:
        self.calls.append((place, offset))
        self._position = offset

    def position(self, place: TopicPartition) -> int:
        assert place == PLACE
        return self._position

    def poll(self, timeout_s: float) -> list[Any]:
        self.calls.append("poll")
        offsets, self._position = self.polls.pop(0) if self.polls else ([], self._position)
        return [SimpleNamespace(offset=offset) for offset in offsets]


def read(consumer: Any, begin: int, end: int) -> list[int]:
    return [record.offset for record in _read(consumer, PLACE, begin, end)]


def test_it_ends_where_it_is_told() -> None:
    consumer = Consumer(([2, 3], 4), ([], 4), ([4, 5, 6, 7, 8], 9))
    assert read(consumer, 2, 6) == [2, 3, 4, 5]
    assert consumer.calls == [[PLACE], (PLACE, 2), "poll", "poll", "poll"]


def test_what_holds_no_records_is_passed() -> None:
    """The markers of transactions, for one."""
    assert read(Consumer(([], 3), ([3], 5), ([], 7)), 0, 7) == [3]


@pytest.mark.parametrize("begin", [5, 6])
def test_where_nothing_is_there_is_nothing_to_read(begin: int) -> None:
    assert read(Consumer(), begin, 5) == []


def test_who_does_not_get_on_says_so_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute without a record and without a step; any of both begins another one."""
    now_s = [0.0]
    monkeypatch.setattr(redrive, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    patience_s = redrive._STUCK_S

    class Slow(Consumer):
        def poll(self, timeout_s: float) -> list[Any]:
            now_s[0] += 0.75 * patience_s
            return super().poll(timeout_s)

    assert read(Slow(([], 0), ([0], 1), ([], 1), ([], 2), ([], 2), ([2], 3)), 0, 3) == [0, 2]
    slow = Slow(([0], 1), ([], 1), ([], 1), ([2], 3))
    with pytest.raises(RedriveError) as stuck:
        read(slow, 0, 3)
    assert str(stuck.value) == "bad-0 could not be read beyond offset 1; is its broker well?"
    assert slow.calls.count("poll") == 3
