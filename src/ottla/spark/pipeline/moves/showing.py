"""A flow's position for those who look at it, and for a consumer group that shall go on there."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.spark.offsets import Offsets
from ottla.spark.pipeline.model import Flow, Model
from ottla.spark.pipeline.moves.positions import MoveError, SourceOffsets, find_position


@dataclass(frozen=True)
class ShownPosition:
    batch: int
    """The last batch that is done; -1 if none is since the flow was moved."""
    position: Offsets
    ends: Offsets
    """Of the partitions there still are."""
    sources: tuple[SourceOffsets, ...]

    def write_group(self, group_id: str) -> None:
        for source in self.sources:
            source.write_group(group_id, self.position)


def show_position(model: Model, flow: Flow) -> ShownPosition:
    found = find_position(model, flow)
    if not found.state.position:
        raise MoveError(f"flow {flow.name} has not finished a batch yet, so it has no position")
    named = {source.name: source for source in found.sources if source is not None}
    sources = tuple(SourceOffsets(source) for source in named.values())
    ends = {one: end for source in sources for one, end in source.logs.latest.items()}
    return ShownPosition(found.state.committed, found.state.position, ends, sources)
