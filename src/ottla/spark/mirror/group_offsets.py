"""Where groups of the source go on reading on the target: their committed offsets, translated by the offset map.

A group is left alone on the target while it has members there, and is never moved back unless somebody asks for it. A
translated offset may repeat records; it never skips one, as long as nobody but the mirror writes to the copies.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from ottla.base.errors import ErrorCode, OttlaError
from ottla.base.types import TopicPartition
from ottla.client.core.admin.types import OffsetSpec
from ottla.client.core.consumer.cursors import OffsetAndMetadata
from ottla.client.errors import ClientError
from ottla.client.sync import Admin, Consumer
from ottla.spark.connections import admin_for
from ottla.spark.mirror.offset_map import OffsetMap, decode_entry
from ottla.spark.mirror.settings import Mirror
from ottla.spark.topic_offsets import existing

if TYPE_CHECKING:
    from ottla.spark.connections import BytesConsumer

_POLL_S = 0.2
_READ_TIMEOUT_S = 60.0
_WITHOUT_MEMBERS = ("Empty", "Dead")


class Verdict(Enum):
    MOVES = "moves"
    IS_THERE = "is there"
    IS_AHEAD = "is ahead"
    """On the target it has come further than on the source."""
    IS_ACTIVE = "is active"


class Translation(NamedTuple):
    """One partition of one group."""

    group_id: str
    source: TopicPartition
    source_offset: int
    target: TopicPartition
    target_offset: int
    current_offset: int | None
    """Where the group is on the target; None if it has committed nothing there."""
    verdict: Verdict
    metadata: str = ""


class MapReader:
    """The offset map as far as it is committed. Later calls of `read` take only what is new."""

    def __init__(self, mirror: Mirror, client: dict[str, str]) -> None:
        """`client` are settings of a consumer."""
        self._partition = TopicPartition(mirror.map_topic, 0)
        own = {"isolation.level": "read_committed", "auto.offset.reset": "earliest", "enable.auto.commit": "false"}
        self._consumer: BytesConsumer = Consumer({**client, **own})
        self._consumer.assign([self._partition])
        self._map = OffsetMap()

    def read(self) -> OffsetMap:
        end = self._consumer.end_offsets([self._partition])[self._partition]
        deadline_s = time.monotonic() + _READ_TIMEOUT_S
        while self._consumer.position(self._partition) < end:
            if time.monotonic() > deadline_s:
                raise OttlaError(f"{self._partition} could not be read to its end; is its broker well?")
            for record in self._consumer.poll(_POLL_S):
                if record.key is not None and record.value is not None:
                    self._map.add(decode_entry(record.key, record.value))
        return self._map

    def close(self) -> None:
        self._consumer.close()


class GroupOffsets:
    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror

    @property
    def _source(self) -> Admin:
        return admin_for(self._mirror.source)

    @property
    def _target(self) -> Admin:
        return admin_for(self._mirror.target)

    def chosen_groups(self) -> list[str]:
        """The groups of the source that the mirror was asked to translate."""
        choice = self._mirror.groups
        if choice is None:
            return []
        return [group.group_id for group in self._source.list_groups() if choice.are_translated(group.group_id)]

    def translate(self, offset_map: OffsetMap, group_ids: Sequence[str], *, rewind: bool = False) -> list[Translation]:
        """What would become of these groups. With `rewind` they may be moved back."""
        if not group_ids:
            return []
        committed = self._source.list_group_offsets(group_ids)
        active = self._active(group_ids)
        current = self._target.list_group_offsets(group_ids)
        found: list[Translation] = []
        beginnings = self._beginnings(offset_map, [one for group_id in group_ids for one in committed[group_id]])
        for group_id in group_ids:
            for source, at in sorted(committed[group_id].items()):
                if source not in beginnings:
                    continue
                target = offset_map.target_of(source)
                assert target is not None
                translated = offset_map.translate(source, at.offset)
                offset = beginnings[source] if translated is None else translated
                there = current[group_id].get(target)
                now = None if there is None else there.offset
                verdict = Verdict.IS_ACTIVE if group_id in active else _verdict(now, offset, rewind=rewind)
                found.append(Translation(group_id, source, at.offset, target, offset, now, verdict, at.metadata))
        return found

    def _beginnings(self, offset_map: OffsetMap, sources: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the copies of those partitions begin that are copied at all."""
        targets = {
            source: target
            for source in sources
            if self._mirror.names.are_copied(source.topic) and (target := offset_map.target_of(source)) is not None
        }
        if not targets:
            return {}
        first = existing(self._target.list_offsets(dict.fromkeys(targets.values(), OffsetSpec.EARLIEST)))
        return {source: first[target].offset for source, target in targets.items() if target in first}

    def _active(self, group_ids: Sequence[str]) -> Collection[str]:
        described = self._target.describe_groups(group_ids)
        for error in described.errors.values():
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise error
        return {group_id for group_id, group in described.results.items() if group.state not in _WITHOUT_MEMBERS}

    def commit(self, translations: Iterable[Translation]) -> list[Translation]:
        """Moves those that are to be moved, and gives them back. One that cannot be moved keeps no other from it."""
        moved = [one for one in translations if one.verdict is Verdict.MOVES]
        errors: list[ClientError] = []
        for group_id in dict.fromkeys(one.group_id for one in moved):
            offsets = {
                one.target: OffsetAndMetadata(one.target_offset, metadata=one.metadata)
                for one in moved
                if one.group_id == group_id
            }
            errors += self._target.alter_group_offsets(group_id, offsets).errors.values()
        for error in errors:
            raise error
        return moved


def _verdict(current: int | None, translated: int, *, rewind: bool) -> Verdict:
    if current == translated:
        return Verdict.IS_THERE
    return Verdict.MOVES if current is None or current < translated or rewind else Verdict.IS_AHEAD
