"""Markers end transactions in partitions: at once where that commits them, and groups hear of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.coordinators.markers import Marker, Markers
from tests.unit.broker.replica_world import ReplicaWorld, change_isr, in_world

OFFSETS = "__consumer_offsets"
MARKER = Marker(7, 3, True, 5)


class Groups:
    """The coordinator's shards, of which one is not loaded here."""

    def __init__(self) -> None:
        self.ended: list[tuple[int, bool]] = []
        self.is_here = True

    def active_shard(self, index: int) -> Any:
        assert index == 0
        machine = SimpleNamespace(end_transaction=lambda *ended: self.ended.append(ended))
        return SimpleNamespace(machine=machine) if self.is_here else None


def markers(world: ReplicaWorld, groups: Groups) -> Markers:
    return Markers(world.replicas, world.replicas._parked, world.clock, groups)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("topic", "is_here", "ended"), [(OFFSETS, True, [(7, True)]), (OFFSETS, False, []), ("t", True, [])]
)
def test_a_marker_is_in_the_log_and_the_group_hears_of_it(
    tmp_path: Path, topic: str, is_here: bool, ended: list[tuple[int, bool]]
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        partition = await world.lead(topic)
        partition.verified_producers.update({7: 3, 8: 0})
        groups = Groups()
        groups.is_here = is_here
        made = markers(world, groups)
        tp = TopicPartition(topic, 0)
        assert made.write_at_once(tp, MARKER)
        assert (partition.log.log_end_offset, groups.ended) == (1, ended)
        assert partition.verified_producers == {8: 0}
        await made.write(tp, MARKER._replace(coordinator_epoch=6), wait_ms=10_000)
        assert (partition.log.log_end_offset, groups.ended) == (2, ended * 2)
        with pytest.raises(KafkaError) as refused:
            made.write_at_once(tp, MARKER)
        assert refused.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        (header,) = [header for _, header in partition.log.segments.first.headers() if header.base_offset == 0]
        assert (header.producer_id, header.producer_epoch, header.is_control) == (7, 3, True)

    in_world(tmp_path, scenario)


def test_where_replicas_are_to_be_waited_for_nothing_is_written_at_once(tmp_path: Path) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        partition = await world.lead(OFFSETS)
        change_isr(world.replicas, partition, 1, 2)
        groups = Groups()
        made = markers(world, groups)
        assert not made.write_at_once(partition.tp, MARKER)
        assert (partition.log.log_end_offset, groups.ended) == (0, [])
        with pytest.raises(KafkaError) as refused:
            await made.write(partition.tp, MARKER, wait_ms=1)
        assert (refused.value.code, groups.ended) == (ErrorCode.REQUEST_TIMED_OUT, [])
        partition.resign()
        with pytest.raises(KafkaError) as refused:
            made.write_at_once(partition.tp, MARKER)
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(KafkaError) as refused:
            made.write_at_once(TopicPartition("none", 0), MARKER)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    in_world(tmp_path, scenario)
