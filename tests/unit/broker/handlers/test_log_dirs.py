"""What is told of the logs in a broker's directories."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.broker.handlers.describe_log_dirs import _describe, respond
from ottla.wire.apis.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

TP = TopicPartition("t", 3)


def log(end: int, high_watermark: int = 0) -> Any:
    return SimpleNamespace(topic_partition=TP, size_bytes=77, log_end_offset=end, high_watermark=high_watermark)


@pytest.mark.parametrize(
    ("described", "current", "lag", "is_future"),
    [
        (log(10, 10), None, 0, False),
        (log(6, 10), None, 4, False),
        (log(12, 10), None, 0, False),
        (log(6), log(10), 4, True),
        (log(10), log(10), 0, True),
        (log(12), log(10), 0, True),
    ],
)
def test_how_far_a_log_is_behind(described: Any, current: Any, lag: int, is_future: bool) -> None:
    """A replica lacks what others have confirmed; a copy in another directory, what the log has that it is made of."""
    dirs: Any = SimpleNamespace(get=lambda tp: described if current is None else current)
    told = _describe(described, dirs)
    assert (told.partition_index, told.partition_size) == (3, 77)
    assert (told.offset_lag, told.is_future_key) == (lag, is_future)


@pytest.mark.parametrize(("partitions", "shown"), [(None, 1), ([3], 1), ([4], 0)])
def test_a_copy_that_is_not_begun_lacks_everything(tmp_path: Path, partitions: list[int] | None, shown: int) -> None:
    waiting = SimpleNamespace(topic_partition=TP, log_start_offset=4, log_end_offset=10)
    log_dirs = SimpleNamespace(paths=[tmp_path], failed={}, logs_in=lambda _: [], futures_in=lambda _: [])
    broker = SimpleNamespace(
        replicas=SimpleNamespace(log_dirs=log_dirs), replica_moves=SimpleNamespace(not_begun=lambda _: [waiting])
    )
    context: Any = SimpleNamespace(may=lambda _: True, broker=broker)
    asked = None if partitions is None else [DescribableLogDirTopic(topic="t", partitions=partitions)]
    (found,) = respond(context, DescribeLogDirsRequest(topics=asked)).results
    told = [(it.partition_size, it.offset_lag, it.is_future_key) for topic in found.topics for it in topic.partitions]
    assert told == [(0, 6, True)] * shown
