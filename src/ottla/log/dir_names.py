"""The names directories have inside a log directory: partitions, and what is on its way out of or into being one."""

from __future__ import annotations

from ottla.base.ids import Ids
from ottla.base.types import TopicPartition

DELETE_DIR_SUFFIX = "-delete"
FUTURE_DIR_SUFFIX = "-future"
KRAFT_METADATA = "__cluster_metadata-0"
"""What a KRaft cluster knows of itself. It has the form of a partition's directory and is none that could be served."""
_MAX_NAME_LENGTH = 255

MOVED_MARK = "moved-here"
"""A file in the directory of a partition that was moved, until the one it replaces is gone."""


def partition_of_directory(name: str) -> TopicPartition | None:
    """The partition whose directory has this name; None if it is no partition's."""
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not partition.isdigit() or name == KRAFT_METADATA:
        return None
    return TopicPartition(topic, int(partition))


def deleted_directory_name(tp: TopicPartition, ids: Ids) -> str:
    """A name that no topic can have, and that a start knows to remove."""
    return _unique_name(tp, ids, DELETE_DIR_SUFFIX)


def future_directory_name(tp: TopicPartition, ids: Ids) -> str:
    """Where a copy grows that will take the partition's place."""
    return _unique_name(tp, ids, FUTURE_DIR_SUFFIX)


def _unique_name(tp: TopicPartition, ids: Ids, kind: str) -> str:
    suffix = f"-{tp.partition}.{ids.hexadecimal()}{kind}"
    return tp.topic[: _MAX_NAME_LENGTH - len(suffix)] + suffix
