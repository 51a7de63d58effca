"""Topics in directories that another broker has left: what they say themselves, and what a KRaft log says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.errors import StartError
from ottla.base.types import NIL_UUID, TopicPartition, Uuid
from ottla.log.checkpoints import write_offsets, write_partition_metadata
from ottla.log.found_topics import FoundTopic, find_topics
from ottla.log.producer_snapshot import ProducerEntry, encode_snapshot
from ottla.records.builder import NewRecord, build_batch
from ottla.wire.message import Message
from ottla.wire.stored.cluster_metadata import ConfigRecord, ProducerIdsRecord, RemoveTopicRecord, TopicRecord

KEPT, GONE, UNKNOWN = (Uuid(bytes([number] * 16)) for number in (1, 2, 3))
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4


def framed(kind: int, record: Message) -> bytes:
    return bytes([1, kind, 0]) + record.encode(0)


def partition(index: int, topic_id: Uuid) -> bytes:
    """Version 1, with replicas and more behind what is read."""
    return bytes([1, 3, 1]) + index.to_bytes(4, "big") + topic_id + bytes(40)


def config(name: str, value: str | None, *, of: str = "kept", kind: int = TOPIC_RESOURCE) -> bytes:
    return framed(4, ConfigRecord(resource_type=kind, resource_name=of, name=name, value=value))


def write(path: Path, base_offset: int, *values: bytes | None) -> None:
    path.write_bytes(metadata_batch(base_offset, *values))


def metadata_batch(base_offset: int, *values: bytes | None, control: bool = False) -> bytes:
    records = [NewRecord(None, value, (), 1) for value in values]
    return build_batch(records, base_offset=base_offset, control=control)


def leave(directory: Path, **topics: Uuid) -> Path:
    for name, topic_id in topics.items():
        (directory / f"{name}-0").mkdir(parents=True)
        write_partition_metadata(directory / f"{name}-0", topic_id)
    metadata = directory / "__cluster_metadata-0"
    metadata.mkdir()
    return metadata


def test_the_newest_snapshot_counts_and_what_came_after_it(tmp_path: Path) -> None:
    metadata = leave(tmp_path, kept=KEPT, gone=GONE, stray=UNKNOWN)
    write(metadata / f"{5:020}-0000000001.checkpoint", 0, config("retention.ms", "1", of="outdated"))
    write(
        metadata / f"{10:020}-0000000001.checkpoint",
        0,
        framed(2, TopicRecord(name="kept", topic_id=KEPT)),
        framed(2, TopicRecord(name="gone", topic_id=GONE)),
        partition(0, KEPT),
        partition(2, KEPT),
        config("retention.ms", "5"),
        config("cleanup.policy", "compact"),
        framed(15, ProducerIdsRecord(broker_id=1, broker_epoch=3, next_producer_id=2000)),
    )
    write(
        metadata / f"{0:020}.log",
        7,
        config("segment.ms", "before the snapshot"),
        config("retention.ms", "before the snapshot"),
        config("cleanup.policy", "before the snapshot"),
        config("retention.ms", "7"),
        config("cleanup.policy", None),
        config("log.retention.ms", "9", of="1", kind=BROKER_RESOURCE),
        framed(9, RemoveTopicRecord(topic_id=GONE)),
        bytes([1, 99, 0, 1, 2, 3]),
    )
    found = find_topics([tmp_path])
    (topic,) = found.topics
    assert (topic.name, topic.topic_id, topic.configs) == ("kept", KEPT, {"retention.ms": "7"})
    assert (topic.partition_count, topic.missing) == (3, [1, 2])
    assert (found.unknown, found.next_producer_id) == (["gone", "stray"], 2000)


def test_without_a_snapshot_the_log_is_read_from_its_beginning_file_by_file(tmp_path: Path) -> None:
    metadata = leave(tmp_path, kept=KEPT)
    write(metadata / f"{0:020}.log", 0, framed(2, TopicRecord(name="kept", topic_id=KEPT)))
    write(metadata / f"{1:020}.log", 1, None, config("retention.ms", "1"), config("segment.ms", "1"))
    write(metadata / f"{4:020}.log", 4, config("retention.ms", "2"))
    (topic,) = find_topics([tmp_path]).topics
    assert topic == FoundTopic("kept", KEPT, {0: -1}, 1, {"retention.ms": "2", "segment.ms": "1"}, False)


def test_a_log_counts_from_the_offset_on_that_its_snapshot_is_named_after(tmp_path: Path) -> None:
    metadata = leave(tmp_path, kept=KEPT)
    write(metadata / f"{10:020}-0000000001.checkpoint", 0, framed(2, TopicRecord(name="kept", topic_id=KEPT)))
    (metadata / f"{0:020}.log").write_bytes(
        metadata_batch(9, config("a", "before")) + metadata_batch(10, config("b", "first")) + metadata_batch(11, None)
    )
    (topic,) = find_topics([tmp_path]).topics
    assert topic.configs == {"b": "first"}


def test_what_raft_writes_for_itself_says_nothing_of_topics(tmp_path: Path) -> None:
    metadata = leave(tmp_path, kept=KEPT)
    (metadata / f"{0:020}.log").write_bytes(
        metadata_batch(0, framed(2, TopicRecord(name="kept", topic_id=KEPT)))
        + metadata_batch(1, framed(9, RemoveTopicRecord(topic_id=KEPT)), control=True)
    )
    assert [topic.name for topic in find_topics([tmp_path]).topics] == ["kept"]


def test_a_topic_that_is_made_again_has_nothing_of_the_old_one(tmp_path: Path) -> None:
    metadata = leave(tmp_path, kept=KEPT)
    write(
        metadata / f"{0:020}.log",
        0,
        framed(9, RemoveTopicRecord(topic_id=UNKNOWN)),
        framed(2, TopicRecord(name="kept", topic_id=GONE)),
        partition(6, GONE),
        config("retention.ms", "1"),
        framed(9, RemoveTopicRecord(topic_id=GONE)),
        framed(2, TopicRecord(name="kept", topic_id=KEPT)),
        partition(1, KEPT),
        partition(0, KEPT),
        config("never.set", None),
    )
    (topic,) = find_topics([tmp_path]).topics
    assert (topic.configs, topic.partition_count, topic.missing) == ({}, 2, [1])


def test_directories_may_hold_more_partitions_than_the_log_tells_of(tmp_path: Path) -> None:
    metadata = leave(tmp_path, kept=KEPT)
    write(metadata / f"{0:020}.log", 0, framed(2, TopicRecord(name="kept", topic_id=KEPT)), partition(0, KEPT))
    (tmp_path / "kept-4").mkdir()
    (topic,) = find_topics([tmp_path]).topics
    assert (topic.partition_count, topic.missing, topic.configs) == (5, [1, 2, 3], {})


def test_a_metadata_log_that_cannot_be_read_is_not_done_without(tmp_path: Path) -> None:
    metadata = leave(tmp_path, kept=KEPT)
    write(metadata / f"{0:020}.log", 0, framed(2, TopicRecord(name="kept", topic_id=KEPT))[:9])
    with pytest.raises(StartError, match=r"settings of the topics are not known: (?s:.*)remove it"):
        find_topics([tmp_path])


def test_a_broker_on_zookeeper_leaves_names_ids_and_epochs(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for directory in (one / "a-0", one / "b-3", other / "a-2", other / "lost+found", other / "c-0"):
        directory.mkdir(parents=True)
    (one / "d-0").touch()
    (other / "__cluster_metadata-0").touch()
    write_partition_metadata(other / "a-2", KEPT)
    (one / "a-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n5 9\n")
    (other / "a-2" / "leader-epoch-checkpoint").write_text("0\n0\n")
    (one / "b-3" / "leader-epoch-checkpoint").write_text("garbage")
    write_offsets(other / "cleaner-offset-checkpoint", {TopicPartition("a", 2): 0, TopicPartition("b", 0): 5})
    (one / "cleaner-offset-checkpoint").touch()
    found = find_topics([one, other])
    assert found.topics == [
        FoundTopic("a", KEPT, {0: 5, 2: -1}, 3, None, True),
        FoundTopic("b", NIL_UUID, {3: -1}, 4, None, False),
        FoundTopic("c", NIL_UUID, {0: -1}, 1, None, False),
    ]
    assert (found.unknown, found.next_producer_id) == ([], 0)
    assert [topic.missing for topic in found.topics] == [[1], [0, 1, 2], []]


def test_what_the_cleaner_has_written_down_is_done_without_if_it_is_garbled(tmp_path: Path) -> None:
    (tmp_path / "a-0").mkdir()
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\na zero 0\n")
    assert [topic.was_compacted for topic in find_topics([tmp_path]).topics] == [False]


def test_partitions_of_one_name_and_several_ids_are_not_guessed_at(tmp_path: Path) -> None:
    for index, topic_id in enumerate((KEPT, GONE)):
        (tmp_path / f"a-{index}").mkdir()
        write_partition_metadata(tmp_path / f"a-{index}", topic_id)
    with pytest.raises(StartError, match=r"a-0, .*a-1 belong to different topics of the name a"):
        find_topics([tmp_path])


def test_an_id_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "a-0").mkdir()
    (tmp_path / "a-0" / "partition.metadata").write_text("nothing")
    with pytest.raises(StartError, match="holds no topic id"):
        find_topics([tmp_path])


@pytest.mark.parametrize(
    ("stored", "following"),
    [([], 0), ([[]], 0), ([[7, 3], [5]], 8), ([[0]], 1), ([[2500]], 2501), ([None, [4]], 5), ([[4], None], 5)],
    ids=str,
)
def test_new_producers_get_ids_that_no_partition_remembers(
    tmp_path: Path, stored: list[list[int] | None], following: int
) -> None:
    """Of each snapshot the ids; None stands for one that is damaged."""
    (tmp_path / "a-0").mkdir()
    (tmp_path / "b-0").mkdir()
    for offset, ids in enumerate(stored):
        data = b"damaged" if ids is None else encode_snapshot([ProducerEntry(producer_id) for producer_id in ids])
        (tmp_path / "a-0" / f"{offset:020}.snapshot").write_bytes(data)
    assert find_topics([tmp_path]).next_producer_id == following


@pytest.mark.parametrize(("remembered", "following"), [(1999, 2000), (2000, 2001), (5, 2000)])
def test_the_log_and_the_partitions_both_tell_of_producers(tmp_path: Path, remembered: int, following: int) -> None:
    metadata = leave(tmp_path, kept=KEPT)
    write(metadata / f"{0:020}.log", 0, framed(15, ProducerIdsRecord(next_producer_id=2000)))
    (tmp_path / "kept-0" / f"{0:020}.snapshot").write_bytes(encode_snapshot([ProducerEntry(remembered)]))
    assert find_topics([tmp_path]).next_producer_id == following
