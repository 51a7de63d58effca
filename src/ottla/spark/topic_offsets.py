"""What the driver asks brokers for: which partitions there are, where they begin and end, where a source starts.

Answers are about one moment and are not kept. The client asks again by itself, for its `default.api.timeout.ms`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ottla.base.errors import ErrorCode, InvalidConfigError, OttlaError
from ottla.base.types import TopicPartition, Uuid
from ottla.spark.connections import admin_for
from ottla.spark.data_loss import report_loss
from ottla.spark.offset_places import (
    EARLIEST,
    LATEST,
    Assign,
    AtEdge,
    AtGroup,
    AtOffsets,
    AtTime,
    AtTimes,
    Place,
    Subscribe,
    SubscribePattern,
)
from ottla.spark.offsets import Offsets
from ottla.spark.options import SourceOptions

if TYPE_CHECKING:
    from ottla.client.core.admin.outcomes import Outcomes
    from ottla.client.core.admin.types import TopicDescription
    from ottla.client.core.consumer.cursors import OffsetAndMetadata
    from ottla.client.sync import Admin

K = TypeVar("K")
V = TypeVar("V")

_NOT_THERE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class MissingTopicError(OttlaError):
    """A topic or partition that a query names does not exist."""


class Logs(NamedTuple):
    """The partitions of a source at one moment: where they begin, where they end, and of which topic they are."""

    earliest: Offsets
    latest: Offsets
    topic_ids: dict[str, Uuid]


class TopicOffsets:
    """By the client that this process keeps for such settings, or by one that somebody else looks after."""

    def __init__(self, options: SourceOptions, admin: Admin | None = None) -> None:
        self._options = options
        self._own_admin = admin

    @property
    def _admin(self) -> Admin:
        return self._own_admin or admin_for(self._options.client)

    def latest(self) -> Offsets:
        """Where partitions end, for a reader of the source's isolation."""
        return self._places(dict.fromkeys(self._chosen(self._topics()), LATEST))

    def topic_ids(self) -> dict[str, Uuid]:
        return {topic.name: topic.topic_id for topic in self._topics()}

    def committed(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        return self._admin.list_group_offsets([group_id])[group_id]

    def logs(self) -> Logs:
        """Partitions that are not there, or not there any more, are left out."""
        topics = self._topics()
        partitions = self._chosen(topics)
        earliest = self._places(dict.fromkeys(partitions, EARLIEST))
        latest = self._places(dict.fromkeys(earliest, LATEST))
        return Logs(
            {partition: earliest[partition] for partition in latest},
            latest,
            {topic.name: topic.topic_id for topic in topics},
        )

    def _topics(self) -> list[TopicDescription]:
        selection = self._options.selection
        if isinstance(selection, SubscribePattern):
            described = self._admin.describe_topics().results.values()
            return [topic for topic in described if not topic.is_internal and selection.matches(topic.name)]
        names = selection.topics if isinstance(selection, Subscribe) else {one.topic for one in selection.partitions}
        return list(existing(self._admin.describe_topics(sorted(names))).values())

    def _chosen(self, topics: Iterable[TopicDescription]) -> list[TopicPartition]:
        there = sorted(TopicPartition(topic.name, info.partition) for topic in topics for info in topic.partitions)
        selection = self._options.selection
        if isinstance(selection, Assign):
            return sorted(set(there) & set(selection.partitions))
        return there

    def _places(self, places: Mapping[TopicPartition, int]) -> Offsets:
        """`places` holds times, `LATEST` or `EARLIEST`. The offset for a time after the last record's is -1."""
        if not places:
            return {}
        found = self._admin.list_offsets(places, read_committed=self._options.reads_committed)
        return {partition: answer.offset for partition, answer in existing(found).items()}

    # Where a query starts and ends

    def first_logs(self) -> Logs:
        """The partitions when a query begins, when all that it names must exist."""
        logs = self.logs()
        selection = self._options.selection
        if isinstance(selection, Subscribe):
            missing = [topic for topic in selection.topics if topic not in logs.topic_ids]
        elif isinstance(selection, Assign):
            missing = [str(partition) for partition in selection.partitions if partition not in logs.latest]
        else:
            missing = []
        if missing:
            raise MissingTopicError(
                f"there is no {', no '.join(missing)}: create the topic, or check the option's names"
            )
        return logs

    def starting(self, logs: Logs) -> Offsets:
        option = "startingOffsets"
        place = self._options.starting
        if isinstance(place, AtGroup):
            return self._in_range(self._of_group(place.group_id, logs), logs, option)
        if isinstance(place, AtTime | AtTimes):
            found = self._at_times(place, logs, "startingTimestamp")
            too_late = sorted(partition for partition, offset in found.items() if offset < 0)
            if too_late and not self._options.starting_at_latest_if_none:
                raise InvalidConfigError(
                    option,
                    f"{', '.join(map(str, too_late))} has no record at or after the starting time; take an earlier"
                    " time, or startingOffsetsByTimestampStrategy=latest to start at the end",
                )
            return {partition: offset if offset >= 0 else logs.latest[partition] for partition, offset in found.items()}
        return self._in_range(self._by_offset(place, logs, option), logs, option)

    def ending(self, logs: Logs) -> Offsets:
        option = "endingOffsets"
        place = self._options.ending
        if isinstance(place, AtTime | AtTimes):
            found = self._at_times(place, logs, "endingTimestamp")
            return {partition: offset if offset >= 0 else logs.latest[partition] for partition, offset in found.items()}
        return self._in_range(self._by_offset(place, logs, option), logs, option)

    def _by_offset(self, place: Place, logs: Logs, option: str) -> Offsets:
        if isinstance(place, AtEdge):
            return dict(logs.latest if place.edge == LATEST else logs.earliest)
        assert isinstance(place, AtOffsets)
        _check_complete(place.offsets, logs, option)
        edges = {LATEST: logs.latest, EARLIEST: logs.earliest}
        return {
            partition: edges[offset][partition] if offset in edges else offset
            for partition, offset in place.offsets.items()
        }

    def _at_times(self, place: AtTime | AtTimes, logs: Logs, option: str) -> Offsets:
        if isinstance(place, AtTime):
            return self._places(dict.fromkeys(logs.latest, place.timestamp_ms))
        _check_complete(place.timestamps_ms, logs, option.replace("Timestamp", "OffsetsByTimestamp"))
        return self._places(place.timestamps_ms)

    def _of_group(self, group_id: str, logs: Logs) -> Offsets:
        """A partition the group has never committed in is read from its beginning."""
        committed = self._admin.list_group_offsets({group_id: list(logs.latest)})[group_id]
        if not any(partition in committed for partition in logs.latest):
            raise InvalidConfigError(
                "startingOffsets", f"the group {group_id} has committed nothing in these topics; check its name"
            )
        return {
            partition: committed[partition].offset if partition in committed else earliest
            for partition, earliest in logs.earliest.items()
        }

    def _in_range(self, offsets: Offsets, logs: Logs, option: str) -> Offsets:
        """Offsets that are not in the log are records that are lost; without them the nearest ones there are."""
        lost = [
            f"{option} has {offset} for {partition}, which holds {logs.earliest[partition]} to {logs.latest[partition]}"
            for partition, offset in sorted(offsets.items())
            if not logs.earliest[partition] <= offset <= logs.latest[partition]
        ]
        report_loss(lost, fail=self._options.fail_on_data_loss)
        return {
            partition: min(max(offset, logs.earliest[partition]), logs.latest[partition])
            for partition, offset in offsets.items()
        }


def log_bounds(client: Mapping[str, str], topic_partition: TopicPartition) -> tuple[int, int] | None:
    """The first offset of a partition and the one after its last, committed or not; None if it does not exist."""
    admin = admin_for(client)
    found = [existing(admin.list_offsets({topic_partition: edge})) for edge in (EARLIEST, LATEST)]
    earliest, latest = (answers.get(topic_partition) for answers in found)
    return None if earliest is None or latest is None else (earliest.offset, latest.offset)


def existing(outcomes: Outcomes[K, V]) -> dict[K, V]:
    """The results, without those of topics and partitions that do not exist; any other error is raised."""
    for error in outcomes.errors.values():
        if error.code not in _NOT_THERE:
            raise error
    return outcomes.results


def _check_complete(given: Mapping[TopicPartition, int], logs: Logs, option: str) -> None:
    missing, stray = sorted(set(logs.latest) - set(given)), sorted(set(given) - set(logs.latest))
    if missing or stray:
        told = f"{missing[0]} is missing" if missing else f"{stray[0]} is not among them"
        raise InvalidConfigError(option, f"{option} must name all partitions that are read, and no others; {told}")
