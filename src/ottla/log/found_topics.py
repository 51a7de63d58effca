"""What topics lie in log directories, for a broker whose metadata store knows none: another broker has made them.

Directory names and `partition.metadata` tell names and ids. What a KRaft broker leaves in `__cluster_metadata-0` tells
settings and numbers of partitions, too; a broker on ZooKeeper leaves them there. Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ottla.base.errors import OttlaError, StartError
from ottla.base.types import NIL_UUID, TopicPartition, Uuid
from ottla.log.checkpoints import CheckpointError, read_offsets, read_partition_metadata
from ottla.log.dir_contents import CLEAN_OFFSETS
from ottla.log.dir_names import KRAFT_METADATA, partition_of_directory
from ottla.log.leader_epochs import UNDEFINED_EPOCH, LeaderEpochs
from ottla.log.producer_snapshot import decode_snapshot, find_snapshots
from ottla.log.segment_files import LOG_SUFFIX
from ottla.records.batch import iter_headers
from ottla.records.reader import read_records
from ottla.wire.stored.cluster_metadata import (
    ClusterRecord,
    ConfigRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_cluster_record,
)

_SNAPSHOT_SUFFIX = ".checkpoint"
_TOPIC = 2


class FoundTopic(NamedTuple):
    name: str
    topic_id: Uuid
    leader_epochs: dict[int, int]
    """Of each partition that is there, the last one."""
    partition_count: int
    """Of which some may be missing."""
    configs: dict[str, str] | None
    """None: nobody knows."""
    was_compacted: bool

    @property
    def missing(self) -> list[int]:
        return [index for index in range(self.partition_count) if index not in self.leader_epochs]


class FoundTopics(NamedTuple):
    topics: list[FoundTopic]
    unknown: list[str]
    """Those the KRaft cluster had deleted, or never had."""
    next_producer_id: int


def find_topics(paths: list[Path]) -> FoundTopics:
    """Raises StartError if the directories contradict themselves."""
    found: dict[str, dict[int, Path]] = {}
    for path in paths:
        for directory in sorted(path.iterdir()):
            tp = partition_of_directory(directory.name)
            if tp is not None and directory.is_dir():
                found.setdefault(tp.topic, {})[tp.partition] = directory
    kraft = next((_KraftTopics(path / KRAFT_METADATA) for path in paths if (path / KRAFT_METADATA).is_dir()), None)
    compacted = {tp for path in paths for tp in _compacted(path)}
    topics, unknown = [], []
    for name, partitions in sorted(found.items()):
        topic_id = _topic_id(name, partitions)
        if kraft is not None and kraft.names.get(topic_id) != name:
            unknown.append(name)
            continue
        count = max(partitions) + 1
        topics.append(
            FoundTopic(
                name,
                topic_id,
                {index: _last_epoch(directory) for index, directory in sorted(partitions.items())},
                count if kraft is None else max(count, kraft.partition_counts.get(topic_id, 0)),
                None if kraft is None else kraft.configs.get(name, {}),
                any(TopicPartition(name, index) in compacted for index in partitions),
            )
        )
    stored = (_next_producer_id(directory) for partitions in found.values() for directory in partitions.values())
    return FoundTopics(topics, unknown, max([0 if kraft is None else kraft.next_producer_id, *stored]))


def _topic_id(name: str, partitions: dict[int, Path]) -> Uuid:
    try:
        ids = {read_partition_metadata(directory) for directory in partitions.values()} - {NIL_UUID}
    except CheckpointError as e:
        raise StartError(str(e)) from e
    if len(ids) > 1:
        directories = ", ".join(str(directory) for directory in partitions.values())
        raise StartError(f"{directories} belong to different topics of the name {name}; remove those of the older one")
    return ids.pop() if ids else NIL_UUID


def _last_epoch(directory: Path) -> int:
    with suppress(CheckpointError):
        epochs = LeaderEpochs.load(directory)
        return UNDEFINED_EPOCH if epochs is None else epochs.latest_epoch
    return UNDEFINED_EPOCH


def _compacted(path: Path) -> set[TopicPartition]:
    """The cleaner has written down how far it came."""
    with suppress(CheckpointError):
        checkpoint = path / CLEAN_OFFSETS
        return set(read_offsets(checkpoint)) if checkpoint.exists() and checkpoint.stat().st_size else set()
    return set()


def _next_producer_id(directory: Path) -> int:
    """Above all that the partition remembers."""
    following = 0
    for path in find_snapshots(directory).values():
        with suppress(OttlaError):
            following = max([following, *(entry.producer_id + 1 for entry in decode_snapshot(path.read_bytes()))])
    return following


class _KraftTopics:
    """What a KRaft cluster knew of its topics: the newest snapshot, and what came after it."""

    def __init__(self, directory: Path) -> None:
        self.names: dict[Uuid, str] = {}
        self.partition_counts: dict[Uuid, int] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.next_producer_id = 0
        try:
            for record in _records_of(directory):
                self._replay(record)
        except (OSError, OttlaError) as e:
            raise StartError(
                f"{directory} cannot be read, so the settings of the topics are not known: {e}; to go on without them "
                "remove it"
            ) from e

    def _replay(self, record: ClusterRecord) -> None:
        match record:
            case TopicRecord():
                self.names[record.topic_id] = record.name
            case PartitionRecord():
                count = max(self.partition_counts.get(record.topic_id, 0), record.partition_id + 1)
                self.partition_counts[record.topic_id] = count
            case ConfigRecord() if record.resource_type == _TOPIC:
                configs = self.configs.setdefault(record.resource_name, {})
                if record.value is None:
                    configs.pop(record.name, None)
                else:
                    configs[record.name] = record.value
            case RemoveTopicRecord():
                self.configs.pop(self.names.pop(record.topic_id, ""), None)
            case ProducerIdsRecord():
                self.next_producer_id = record.next_producer_id


def _records_of(directory: Path) -> Iterator[ClusterRecord]:
    snapshots = {int(path.name.partition("-")[0]): path for path in directory.glob(f"*-*{_SNAPSHOT_SUFFIX}")}
    start_offset = max(snapshots, default=0)
    if snapshots:
        yield from _records_in(snapshots[start_offset], 0)
    for path in sorted(directory.glob(f"*{LOG_SUFFIX}")):
        yield from _records_in(path, start_offset)


def _records_in(path: Path, start_offset: int) -> Iterator[ClusterRecord]:
    data = path.read_bytes()
    for position, header in iter_headers(data):
        if header.is_control or header.last_offset < start_offset:
            continue
        for stored in read_records(data[position : position + header.size], header):
            record = decode_cluster_record(stored.value) if stored.value is not None else None
            if record is not None and stored.offset >= start_offset:
                yield record
