"""Settings of brokers, by what they do: coordinators, checkpoints, time-outs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from ottla.base.errors import ErrorCode, InvalidConfigError
from ottla.base.types import TopicPartition
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.housekeeping import Housekeeping
from ottla.log.checkpoints import read_offsets
from ottla.log.config import LogConfig
from ottla.machines.cluster.topic_names import GROUP_METADATA_TOPIC
from ottla.records.batch import iter_headers
from ottla.records.compression import Codec
from ottla.wire.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.apis.find_coordinator import FindCoordinatorRequest
from ottla.wire.apis.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.unit.broker.handlers.test_groups import commit, committed, make_topic
from tests.unit.broker.replica_world import ReplicaWorld, change_isr, in_world
from tests.unit.broker.running_broker import RunningBroker, running_broker
from tests.waiting import repeat_until, until

HIGH_WATERMARKS = "replication-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HOUR_MS = 3_600_000


def with_groups(broker: RunningBroker) -> RunningBroker:
    find = FindCoordinatorRequest(coordinator_keys=["g"], key_type=0)
    repeat_until(lambda: broker.ask(find).coordinators[0].error_code == 0)
    return broker


def test_offsets_are_stored_with_the_codec_that_was_asked_for_and_loaded_in_small_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"offsets_topic_num_partitions": 1, "offsets_topic_compression_codec": int(Codec.GZIP)}
    with running_broker(tmp_path, **settings) as broker:
        make_topic(with_groups(broker), "t")
        for offset in range(20):
            assert commit(broker, "g", t={0: offset}) == {"t": [0]}
    (segment,) = (tmp_path / f"{GROUP_METADATA_TOPIC}-0").glob("*.log")
    assert {header.codec for _, header in iter_headers(segment.read_bytes())} == {Codec.GZIP}

    reads: list[int] = []

    def counted(fd: int, length: int, position: int) -> bytes:
        reads.append(length)
        return os.pread(fd, length, position)

    monkeypatch.setattr("ottla.broker.coordinators.loading.os", SimpleNamespace(pread=counted))
    with running_broker(tmp_path, **settings, offsets_load_buffer_size=200) as broker:
        fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g")])
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        repeat_until(lambda: with_groups(broker).ask(fetch).groups[0].error_code != loading)
        assert committed(broker, "g", "t")["t", 0] == 19
    assert len(reads) >= 10 and max(reads) <= 200, "no more than the buffer at a time"


def test_groups_of_a_protocol_that_is_not_offered_are_refused(tmp_path: Path) -> None:
    beat = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", subscribed_topic_names=["t"], member_epoch=0)
    with running_broker(tmp_path, group_coordinator_rebalance_protocols="classic") as broker:
        assert with_groups(broker).ask(beat).error_code == ErrorCode.UNSUPPORTED_VERSION
        (described,) = broker.ask(ConsumerGroupDescribeRequest(group_ids=["g"])).groups
        assert described.error_code == ErrorCode.UNSUPPORTED_VERSION
    with running_broker(tmp_path) as broker:
        assert with_groups(broker).ask(beat).error_code != ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(InvalidConfigError, match="must name classic"):
        BrokerConfig({"group.coordinator.rebalance.protocols": "consumer"})


@pytest.mark.parametrize(
    ("setting", "name", "is_written"),
    [
        ("replica.high.watermark.checkpoint.interval.ms", HIGH_WATERMARKS, lambda offset: offset == 3),
        ("log.flush.offset.checkpoint.interval.ms", RECOVERY_POINTS, lambda offset: offset == 3),
        ("log.flush.start.offset.checkpoint.interval.ms", LOG_START_OFFSETS, lambda offset: offset == 2),
    ],
)
def test_each_checkpoint_is_written_at_its_own_interval(
    tmp_path: Path, setting: str, name: str, is_written: Callable[[int | None], bool]
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        partition = await world.lead("t")
        intervals = dict.fromkeys(
            (
                "replica.high.watermark.checkpoint.interval.ms",
                "log.flush.offset.checkpoint.interval.ms",
                "log.flush.start.offset.checkpoint.interval.ms",
            ),
            str(HOUR_MS),
        )
        jobs = Housekeeping(world.replicas, world.clock, BrokerConfig({**intervals, setting: "5"}))
        for _ in range(3):
            world.append(partition)
        partition.log.flush()
        partition.log.advance_log_start_offset(2)
        directory = partition.log.directory.parent
        jobs.start()
        try:
            await until(lambda: is_written(read_offsets(directory / name).get(TopicPartition("t", 0))))
        finally:
            await jobs.stop()
        for other in {HIGH_WATERMARKS, RECOVERY_POINTS, LOG_START_OFFSETS} - {name}:
            assert TopicPartition("t", 0) not in read_offsets(directory / other)

    in_world(tmp_path, scenario)


def test_a_segment_that_is_closed_and_on_disk_is_noted_at_once(tmp_path: Path) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        partition = await world.lead("t")
        jobs = Housekeeping(world.replicas, world.clock, BrokerConfig({}))
        path = partition.log.directory.parent / RECOVERY_POINTS
        world.append(partition)
        await jobs.flush_due()
        assert TopicPartition("t", 0) not in read_offsets(path), "the segment is not closed"
        for _ in range(5):
            world.append(partition)
        await jobs.flush_due()
        assert len(partition.log.segments.all()) > 1
        assert read_offsets(path)[TopicPartition("t", 0)] >= partition.log.segments.active.base_offset

    in_world(tmp_path, scenario, LogConfig(segment_index_bytes=4096, segment_bytes=150, flush_messages=1))


def test_the_time_others_have_to_answer(tmp_path: Path) -> None:
    with running_broker(tmp_path, controller_socket_timeout_ms=1234, request_timeout_ms=2345) as running:
        broker = running.broker
        assert (broker.controller_client._timeout_ms, broker.controller_client._topic_timeout_ms) == (1234, 2345)
        assert broker.transactions._peers._timeout_ms == 2345


@pytest.mark.parametrize(("acks", "waits"), [(-1, True), (0, False), (1, False)])
def test_what_groups_store_counts_once_all_replicas_have_it_or_this_one(tmp_path: Path, acks: int, waits: bool) -> None:
    silent_follower = 999
    settings = {"offsets_topic_num_partitions": 1, "offsets_commit_required_acks": acks}
    with running_broker(tmp_path, **settings) as broker:
        make_topic(with_groups(broker), "t")
        replicas = broker.broker.replicas
        partition = replicas.led(GROUP_METADATA_TOPIC, 0)
        change_isr(replicas, partition, broker.broker.broker_id, silent_follower)
        entry = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
        request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[entry])])
        assert broker.answers_at_once(request, 7) is not waits
