"""Moves a flow: its checkpoint is set aside, and it goes on at other offsets, with a new query and without memory.

In this order, so that a reset which is cut off anywhere is completed or undone by the next one, and no run meanwhile
mistakes one state for another: the new checkpoint is written beside the old one, both are exchanged, and the sink is
told of the new query. See `checkpoint_exchange` for the moments in between.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ottla.base.errors import OttlaError
from ottla.base.types import TopicPartition
from ottla.spark.offset_places import AtOffsets, Place
from ottla.spark.offsets import Offsets, to_placed_json
from ottla.spark.pipeline.flows.checkpoints import FlowCheckpoint, PlannedBatch
from ottla.spark.pipeline.flows.running import flow_stands_still
from ottla.spark.pipeline.model import Flow, Model
from ottla.spark.pipeline.moves.checkpoint_exchange import CheckpointExchange
from ottla.spark.pipeline.moves.positions import (
    FlowPosition,
    MoveError,
    SourceOffsets,
    directory_of,
    find_flow,
    find_position,
)
from ottla.spark.pipeline.parts import MovedFlow, MovingSinkPart

_VERSION = "v1"


@dataclass(frozen=True)
class Move:
    """What a reset does, or would do."""

    flow: str
    before: Mapping[TopicPartition, int]
    after: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    notes: tuple[str, ...] = ()
    """Sentences: what it means for what is written already, and for what is to come."""
    aside: Path | None = None
    """Where the old checkpoint is; None if nothing was done."""

    @property
    def read_again(self) -> int:
        return sum(max(0, at - self.after[one]) for one, at in self.before.items() if one in self.after)

    @property
    def passed_over(self) -> int:
        return sum(max(0, self.after[one] - at) for one, at in self.before.items() if one in self.after)


def reset_flow(model: Model, flow_name: str, place: Place, *, dry_run: bool) -> Move:
    """MoveError or FlowBusyError if it cannot be done; then nothing was done."""
    flow = find_flow(model, flow_name)
    exchange = CheckpointExchange(directory_of(flow), int(time.time() * 1000))
    with flow_stands_still(flow):
        _settle(model, flow, exchange)
        position = find_position(model, flow)
        _check_movable(model, position)
        found = {source.name: SourceOffsets(source) for source in position.sources if source is not None}
        lines, after = list[str](), Offsets()
        for line, source in zip(position.last.sources, position.sources, strict=True):
            offsets = None if source is None else found[source.name].at(place, position.state.position)
            lines.append(line if offsets is None else json.dumps(to_placed_json(offsets)))
            after |= offsets or {}
        ends = {one: end for known in found.values() for one, end in known.logs.latest.items()}
        _check_named(place, ends)
        move = Move(flow_name, position.state.position, after, ends)
        not_there = [note for known in found.values() for note in known.notes]
        move = replace(move, notes=(*not_there, *_notes(model, position, move)))
        if dry_run:
            return move
        ids = {topic: topic_id for known in found.values() for topic, topic_id in known.topic_ids.items()}
        exchange.prepare(PlannedBatch(_VERSION, position.last.own, tuple(lines)), ids, model.conf)
        aside = exchange.carry_out()
        _tell_sink(model, flow, aside)
        exchange.finish()
        _show_as_group(flow, position, found, after)
        return replace(move, aside=aside)


def _check_movable(model: Model, position: FlowPosition) -> None:
    flow = position.flow
    if position.last.version != _VERSION:
        raise MoveError(f"the checkpoint of flow {flow.name} is of a kind that cannot be moved here")
    sink = model.sinks[flow.sink].part
    if isinstance(sink, MovingSinkPart) and (obstacle := sink.obstacle_to_move()) is not None:
        raise MoveError(f"flow {flow.name} cannot be moved: {obstacle}")


def _check_named(place: Place, ends: Mapping[TopicPartition, int]) -> None:
    stray = set(place.offsets) - set(ends) if isinstance(place, AtOffsets) else set()
    if stray:
        raise MoveError(f"the flow does not read {min(stray)}")


def _settle(model: Model, flow: Flow, exchange: CheckpointExchange) -> None:
    """Brings to an end what an earlier reset has left half done."""
    aside = exchange.take_back()
    if aside is not None:
        _tell_sink(model, flow, aside)
    exchange.finish()


def _tell_sink(model: Model, flow: Flow, aside: Path) -> None:
    sink = model.sinks[flow.sink].part
    before, after = (FlowCheckpoint(None, location) for location in (str(aside), flow.checkpoint))
    old, new, plan = before.state(), after.state(), after.planned(0)
    assert old is not None and new is not None and plan is not None
    if isinstance(sink, MovingSinkPart):
        sink.flow_moved(MovedFlow(f"{model.name}-{flow.name}", old.query_id, new.query_id, plan.sources))


def _show_as_group(
    flow: Flow, position: FlowPosition, found: Mapping[str, SourceOffsets], after: Mapping[TopicPartition, int]
) -> None:
    """Lag tools see the new place at once. The next run shows it in any case."""
    for source in position.sources:
        if source is not None:
            try:
                found[source.name].write_group(flow.group_id, after)
            except OttlaError:
                return


def _notes(model: Model, position: FlowPosition, move: Move) -> list[str]:
    sink = model.sinks[position.flow.sink].part
    notes = []
    if position.is_in_a_batch:
        begun = f"batch {position.state.begun} was begun and is not known to be done"
        notes.append(f"{begun}: some of its rows may be in the sink already")
    if move.read_again:
        again = "what becomes of rows that are written a second time is up to the sink"
        if isinstance(sink, MovingSinkPart):
            again = sink.rewritten_rows
        notes.append(f"{move.read_again} offsets are read again: {again}")
    if move.passed_over:
        notes.append(f"{move.passed_over} offsets are passed over: the flow never reads them")
    if (directory_of(position.flow) / "state").exists():
        notes.append("its memory (windows, joins, repetitions) starts empty, with what comes from there on")
    return notes
