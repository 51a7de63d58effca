"""What is told of the logs in a broker's directories."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.broker.handlers.describe_log_dirs import _describe

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
