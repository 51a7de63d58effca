"""What a follower says: that it has to cut what was committed, and that it cannot fetch, if that lasts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.clock import ManualClock
from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.replication.fetchers import _Followed, _log_cut, _SourceFetcher
from tests.unit.broker.replica_world import TOPIC_ID, ReplicaWorld, in_world
from tests.waiting import run_async, until


@pytest.mark.parametrize(("offset", "level"), [(3, "INFO"), (2, "ERROR")])
def test_what_is_cut_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture, offset: int, level: str) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        partition = await world.lead("t")
        for _ in range(3):
            world.append(partition)
        assert partition.log.high_watermark == 3
        with caplog.at_level("INFO"):
            _log_cut(partition, offset)
        (line,) = [record for record in caplog.records if "where the leader goes on" in record.message]
        assert line.levelname == level
        assert ("1 records were committed and are gone" in line.message) == (level == "ERROR")

    in_world(tmp_path, scenario)


@pytest.mark.parametrize(
    ("code", "told_with_try"),
    [
        (ErrorCode.UNKNOWN_TOPIC_ID, 5),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 5),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 5),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, 5),
        (ErrorCode.FENCED_LEADER_EPOCH, 5),
        (ErrorCode.KAFKA_STORAGE_ERROR, 1),
    ],
    ids=lambda v: str(v),
)
def test_what_passes_soon_is_not_told_and_the_rest_once(
    caplog: pytest.LogCaptureFixture, code: ErrorCode, told_with_try: int
) -> None:
    fetcher: Any = object.__new__(_SourceFetcher)
    config = BrokerConfig({"replica.fetch.backoff.ms": "320"})
    fetcher._owner = SimpleNamespace(config=lambda: config, clock=ManualClock())
    fetcher._source, fetcher._resting = 2, {}
    followed = _Followed(SimpleNamespace(tp=TopicPartition("t", 0)), leader_epoch=1)  # type: ignore[arg-type]
    told = []
    with caplog.at_level("INFO"):
        for _ in range(8):
            fetcher._back_off(followed, code, code.name)
            told.append(len(caplog.records))
    assert told == [int(number >= told_with_try) for number in range(1, 9)]
    assert caplog.messages == [f"t-0 cannot be fetched from broker 2 for now: {code.name}"]
    assert followed.waits_until_ms == fetcher._owner.clock.monotonic_ms() + 320


def test_a_leader_that_cannot_be_reached_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        tries = 0

        async def connection(*_: object, **__: object) -> None:
            nonlocal tries
            tries += 1
            raise OSError("refused")

        config = BrokerConfig({"replica.fetch.backoff.ms": "1"})
        peers = SimpleNamespace(connection=connection)
        owner: Any = SimpleNamespace(peers=peers, config=lambda: config, clock=ManualClock())
        fetcher = _SourceFetcher(owner, 2, 0)
        partition: Any = SimpleNamespace(tp=TopicPartition("t", 0), leader_epoch=1, topic_id=TOPIC_ID)
        fetcher.add(partition)
        await until(lambda: tries >= 3)
        fetcher.cancel()

    with caplog.at_level("INFO"):
        run_async(scenario())
    assert caplog.messages == ["replicas cannot be fetched from broker 2 for now: refused"]
