"""What is told of the logs in a broker's directories."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, LogDirError
from ottla.base.types import TopicPartition
from ottla.broker.handlers.describe_log_dirs import _describe, respond
from ottla.wire.apis.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tests.unit.broker.running_broker import running_broker

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


def test_each_directory_has_its_logs_by_topic(tmp_path: Path) -> None:
    paths = [tmp_path / "one", tmp_path / "two"]
    with running_broker(paths[0], log_dirs=",".join(map(str, paths))) as broker:
        names = [broker.new_topic() for _ in range(3)]

        def found(asked: list[DescribableLogDirTopic] | None = None) -> dict[str, Any]:
            answer = broker.ask(DescribeLogDirsRequest(topics=asked))
            assert answer.error_code == ErrorCode.NONE
            assert [result.log_dir for result in answer.results] == [str(path) for path in paths]
            return {result.log_dir: result for result in answer.results}

        def shown(results: dict[str, Any]) -> dict[str, list[tuple[str, int]]]:
            return {
                path: [(topic.name, part.partition_index) for topic in result.topics for part in topic.partitions]
                for path, result in results.items()
            }

        def held(path: Path, *wanted: TopicPartition) -> list[tuple[str, int]]:
            logs = broker.broker.replicas.log_dirs.logs_in(path)
            tps = sorted(tuple(log.topic_partition) for log in logs)
            return [tp for tp in tps if not wanted or tp in wanted]

        everything = found()
        assert {path: sorted(tps) for path, tps in shown(everything).items()} == {
            str(path): held(path) for path in paths
        }
        assert sum(len(tps) for tps in shown(everything).values()) == 6
        for result in everything.values():
            assert [topic.name for topic in result.topics] == sorted({topic.name for topic in result.topics})
            assert result.error_code == ErrorCode.NONE and result.total_bytes > result.usable_bytes > 0
            for topic in result.topics:
                assert [(part.partition_size, part.is_future_key) for part in topic.partitions] == [
                    (0, False) for _ in topic.partitions
                ]
        some = found([DescribableLogDirTopic(topic=names[1], partitions=[1])])
        assert shown(some) == {str(path): held(path, TopicPartition(names[1], 1)) for path in paths}
        broker.broker.replicas.log_dirs.fail(paths[1], LogDirError("broken"))
        after = found()
        assert [(result.error_code, bool(result.topics)) for result in after.values()] == [
            (ErrorCode.NONE, True),
            (ErrorCode.KAFKA_STORAGE_ERROR, False),
        ]
