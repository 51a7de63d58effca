"""Where reading a topic as a table begins and ends, and how long a topic that is not there is looked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from ottla import TopicPartition
from ottla.base.errors import ErrorCode
from ottla.client.aio.consumer import arrow_reading
from ottla.client.aio.consumer.arrow_reading import _milliseconds, _offsets, _partition, _partitions
from ottla.client.core.consumer.offset_requests import OffsetAndTimestamp
from ottla.errors import ClientError
from tests.waiting import run_async

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Log:
    """Partitions that hold offsets 3 to 9; the record at 5 is of noon."""

    def __init__(self) -> None:
        self.times: dict[TopicPartition, int] = {}
        self.settings = SimpleNamespace(
            client=SimpleNamespace(retry_backoff_ms=0, retry_backoff_max_ms=0), api_timeout_ms=1000
        )
        self._engine = None

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 10)

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 3)

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        self.times = dict(times)
        noon_ms = int(NOON.timestamp() * 1000)
        return {one: OffsetAndTimestamp(5, at, 0) if at <= noon_ms else None for one, at in times.items()}


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ("earliest", {A: 3, B: 3}),
        ("latest", {A: 10, B: 10}),
        (7, {A: 7, B: 7}),
        (10, {A: 10, B: 10}),
        (99, {A: 10, B: 10}),
        (0, {A: 0, B: 0}),
        (NOON, {A: 5, B: 5}),
        (NOON + timedelta(days=1), {A: 10, B: 10}),
        ({A: "earliest", B: NOON}, {A: 3, B: 5}),
        ({A: 4, B: "latest"}, {A: 4, B: 10}),
    ],
)
def test_bounds(bounds: Any, expected: dict[TopicPartition, int]) -> None:
    log: Any = Log()
    assert run_async(_offsets(log, [A, B], bounds)) == expected


@pytest.mark.parametrize("bound", [-1, "first", 1.5, None])
def test_what_is_no_bound(bound: Any) -> None:
    log: Any = Log()
    with pytest.raises(ValueError, match="t-0: a bound is an offset, 'earliest', 'latest' or a datetime"):
        run_async(_offsets(log, [A], bound))
    with pytest.raises(ValueError, match="the bounds leave out t-1"):
        run_async(_offsets(log, [A, B], {A: 1}))
    with pytest.raises(ValueError, match="a list of \\(topic, partition\\), but 't' was in the list"):
        _partition("t")  # type: ignore[arg-type]


def test_a_time_is_the_first_millisecond_that_is_not_before_it() -> None:
    for micros, expected in ((0, 0), (1, 1), (999, 1), (1000, 1), (1001, 2)):
        time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
        assert _milliseconds(time) == expected
    assert _milliseconds(datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC)) == 0


@pytest.mark.parametrize(("appears_after", "asked"), [(0, 1), (3, 4), (4, 4), (99, 4)])
def test_a_topic_that_was_just_made_is_asked_for_a_few_times(
    appears_after: int, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions: list[list[str]] = []

    async def find(engine: object, topics: list[str], timeout_ms: int) -> dict[str, list[Any]]:
        questions.append(topics)
        return (
            {"t": [SimpleNamespace(partition=0), SimpleNamespace(partition=1)]}
            if len(questions) > appears_after
            else {}
        )

    monkeypatch.setattr(arrow_reading, "find_topics", find)
    log: Any = Log()
    if appears_after < 4:
        assert run_async(_partitions(log, "t")) == [A, B]
    else:
        with pytest.raises(ClientError, match="there is no topic t") as refusal:
            run_async(_partitions(log, "t"))
        assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert questions == [["t"]] * asked


def test_partitions_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async def find(engine: object, topics: list[str], timeout_ms: int) -> dict[str, list[Any]]:
        return {"t": [SimpleNamespace(partition=0), SimpleNamespace(partition=1)]}

    monkeypatch.setattr(arrow_reading, "find_topics", find)
    log: Any = Log()
    assert run_async(_partitions(log, [("t", 1), ("t", 0), ("t", 1)])) == [B, A]
    assert run_async(_partitions(log, [])) == []
    with pytest.raises(ClientError, match="topic t has no partition 7; those it has: 0, 1"):
        run_async(_partitions(log, [("t", 7)]))
