"""Where a flow is, by its checkpoint, in terms of its sources; and where it could be, by what brokers know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ottla.base.errors import OttlaError
from ottla.base.types import TopicPartition
from ottla.client.core.consumer.cursors import OffsetAndMetadata
from ottla.client.sync import Admin
from ottla.spark.connections import admin_for
from ottla.spark.offset_places import EARLIEST, LATEST, AtGroup, AtOffsets, Place
from ottla.spark.offsets import Offsets
from ottla.spark.options import SourceOptions
from ottla.spark.pipeline.flows.checkpoints import CheckpointState, FlowCheckpoint, PlannedBatch
from ottla.spark.pipeline.flows.running import local_directory
from ottla.spark.pipeline.model import Flow, Model, Source
from ottla.spark.pipeline.parts import TopicStreamPart
from ottla.spark.pipeline.problems import suggestion
from ottla.spark.progress import parse_offsets
from ottla.spark.topic_offsets import Logs, TopicOffsets

_WITHOUT_MEMBERS = ("Empty", "Dead")


class MoveError(OttlaError):
    """A flow cannot be moved, or its position not be told; the message is a sentence or two."""


class FlowPosition(NamedTuple):
    flow: Flow
    state: CheckpointState
    last: PlannedBatch
    """The last batch that was planned."""
    sources: tuple[Source | None, ...]
    """Which source each of its lines is about; None for one without any topic yet."""

    @property
    def is_in_a_batch(self) -> bool:
        """Whether a batch was begun and is not known to be done."""
        was_only_moved = self.state.committed < 0 and bool(self.state.position)
        return self.state.begun > self.state.committed and not was_only_moved


def find_flow(model: Model, name: str) -> Flow:
    flow = model.flows.get(name)
    if flow is None:
        raise MoveError(f"there is no flow {name!r}.{suggestion(name, model.flows)}")
    return flow


def directory_of(flow: Flow) -> Path:
    """Of its checkpoint."""
    directory = local_directory(flow.checkpoint)
    if directory is None:
        raise MoveError(f"flow {flow.name} has its checkpoint at {flow.checkpoint}, not in a directory of this machine")
    return directory


def find_position(model: Model, flow: Flow) -> FlowPosition:
    """What its checkpoint says. MoveError if there is none, or it is about something else than topics."""
    checkpoint = FlowCheckpoint(None, str(directory_of(flow)))
    try:
        state = checkpoint.state()
        last = None if state is None else checkpoint.planned(state.begun)
    except (OSError, ValueError, KeyError) as e:
        raise MoveError(f"the checkpoint of flow {flow.name}, {flow.checkpoint}, cannot be read: {e}") from e
    if state is None or last is None:
        raise MoveError(
            f"flow {flow.name} has not run yet: it will start where 'starting_offsets' of its source says, "
            "which may be group:<id>"
        )
    return FlowPosition(flow, state, last, tuple(_source_of(model, flow, line) for line in last.sources))


def _source_of(model: Model, flow: Flow, line: str) -> Source | None:
    if line == "{}":
        return None
    offsets = parse_offsets(line)
    if offsets is None:
        raise MoveError(f"flow {flow.name} reads something else than topics, too, and cannot be moved within that")
    topics = {one.topic for one in offsets}
    streams = [source for source in model.sources.values() if isinstance(source.part, TopicStreamPart)]
    # Two clusters may have a topic of one name; that of the flow's own source comes first.
    for source in sorted(streams, key=lambda source: source.name != flow.origin):
        assert isinstance(source.part, TopicStreamPart)
        if all(source.part.reads(topic) for topic in topics):
            return source
    if flow.origin in model.sources and model.sources[flow.origin] in streams:
        # Its source reads other topics by now.
        return model.sources[flow.origin]
    named = ", ".join(sorted(topics))
    raise MoveError(f"the checkpoint of flow {flow.name} holds offsets of {named}, which no source reads any more")


class SourceOffsets:
    """What brokers know of the topics of one source."""

    def __init__(self, source: Source) -> None:
        assert isinstance(source.part, TopicStreamPart)
        self._options = SourceOptions.for_stream(source.part.stream_options)
        self.logs: Logs = TopicOffsets(self._options).first_logs()
        self.notes: list[str] = []
        """Sentences about offsets that were asked for and are not there."""

    @property
    def admin(self) -> Admin:
        return admin_for(self._options.client)

    @property
    def topic_ids(self) -> dict[str, str]:
        return {topic: str(topic_id) for topic, topic_id in self.logs.topic_ids.items()}

    def at(self, place: Place, current: Mapping[TopicPartition, int]) -> Offsets:
        """An offset for each partition. Where a time is after the last record, that is the end; a partition that a
        group has no position in is read from its beginning, and one that JSON does not name stays where it is."""
        logs = self.logs
        if isinstance(place, AtGroup):
            group = self._of_group(place.group_id)
            return {one: self._nearest(one, group.get(one, earliest)) for one, earliest in logs.earliest.items()}
        if isinstance(place, AtOffsets):
            kept = {one: current.get(one, earliest) for one, earliest in logs.earliest.items()}
            return {one: self._nearest(one, place.offsets.get(one, offset)) for one, offset in kept.items()}
        options = replace(self._options, starting=place, starting_at_latest_if_none=True)
        return TopicOffsets(options).starting(logs)

    def _nearest(self, one: TopicPartition, offset: int) -> int:
        earliest, latest = self.logs.earliest[one], self.logs.latest[one]
        if offset in (EARLIEST, LATEST):
            return earliest if offset == EARLIEST else latest
        nearest = min(max(offset, earliest), latest)
        if nearest != offset:
            self.notes.append(f"{one} holds {earliest} to {latest}: {offset} is not there, {nearest} is the nearest")
        return nearest

    def _of_group(self, group_id: str) -> Offsets:
        committed = self.admin.list_group_offsets([group_id])[group_id]
        found = {one: at.offset for one, at in committed.items() if one in self.logs.latest}
        if not found:
            topics = ", ".join(sorted({one.topic for one in self.logs.latest}))
            listed = [group.group_id for group in self.admin.list_groups()]
            if group_id not in listed:
                raise MoveError(f"there is no group {group_id!r}.{suggestion(group_id, listed)}")
            raise MoveError(f"group {group_id} has no position in {topics}")
        return found

    def write_group(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """MoveError if somebody reads with the group."""
        described = self.admin.describe_groups([group_id]).results
        if any(group.state not in _WITHOUT_MEMBERS for group in described.values()):
            raise MoveError(f"group {group_id} has members at work: stop them first")
        noted = {one: OffsetAndMetadata(offset) for one, offset in offsets.items() if one in self.logs.latest}
        self.admin.alter_group_offsets(group_id, noted).check()
