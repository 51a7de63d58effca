"""Whether flows can go on from their checkpoints, asked before any of them starts.

A checkpoint holds offsets of topics by their names. They are worth nothing if the description names other topics by
now, if a topic of the same name is another one, or if the checkpoint is an old copy whose later batches are written
already.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.client.core.consumer.cursors import OffsetAndMetadata
from ottla.spark.options import SourceOptions
from ottla.spark.pipeline.flows.checkpoints import CheckpointState, FlowCheckpoint
from ottla.spark.pipeline.flows.running import is_being_moved
from ottla.spark.pipeline.flows.topics import TopicQuestions
from ottla.spark.pipeline.model import Flow, Model, Source
from ottla.spark.pipeline.parts import TopicStreamPart
from ottla.spark.pipeline.problems import Problem, SpecError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_START_OVER = (
    "start over with a new checkpoint: delete that directory, or give the flow another 'checkpoint'; "
    "or move it with `ottla pipeline reset`"
)


def end_note(state: CheckpointState) -> dict[str, object]:
    """What is left in the metadata of a flow's group when it has ended well."""
    return {"query": state.query_id, "batch": state.committed}


def check_continuity(spark: SparkSession, model: Model, sources: Mapping[str, Sequence[Source]], *, note: bool) -> None:
    """SpecError says which flow cannot go on, why, and what to do. `sources` are the topics each flow reads.

    With `note`, the ids of the topics are written down beside the checkpoints.
    """
    questions = TopicQuestions(source for found in sources.values() for source in found)
    try:
        problems = [
            problem
            for flow in model.flows.values()
            for problem in _check_flow(
                FlowCheckpoint(spark, flow.checkpoint), flow, sources[flow.name], questions, note
            )
        ]
    finally:
        questions.close()
    if problems:
        raise SpecError(problems)


def _check_flow(
    checkpoint: FlowCheckpoint, flow: Flow, sources: Sequence[Source], questions: TopicQuestions, note: bool
) -> Iterator[Problem]:
    if is_being_moved(flow.checkpoint):
        yield flow.section.problem(
            "checkpoint", f"`ottla pipeline reset` of flow {flow.name} was cut off: do it once more, to complete it"
        )
        return
    try:
        state = checkpoint.state()
        ids = {topic: str(found) for source in sources for topic, found in questions.topic_ids(source.name).items()}
    except (OSError, ValueError, KeyError) as e:
        yield flow.section.problem("checkpoint", f"its checkpoint {checkpoint.location} cannot be read: {e}")
        return
    if state is not None and sources:
        problems = [
            *_changed_topics(checkpoint, state, flow, sources, ids),
            *_old_copy(checkpoint, state, flow, sources, questions),
        ]
        if problems:
            yield from problems
            return
    if note and ids:
        checkpoint.note_topic_ids(ids)


def _changed_topics(
    checkpoint: FlowCheckpoint, state: CheckpointState, flow: Flow, sources: Sequence[Source], ids: Mapping[str, str]
) -> Iterator[Problem]:
    if not all(_fails_on_data_loss(source) for source in sources):
        return
    named = ", ".join(source.section.title for source in sources)
    before = checkpoint.topic_ids()
    for topic in sorted({one.topic for one in state.position}):
        owner = sources[0].section
        held = f"the checkpoint of flow {flow.name}, {checkpoint.location}, holds offsets of topic {topic!r}"
        if not any(_reads(source, topic) for source in sources):
            yield owner.problem(
                "topic", f"{held}, which {named} does not read any more. Let it read that topic again, or {_START_OVER}"
            )
        elif topic in ids and before.get(topic, ids[topic]) != ids[topic]:
            yield owner.problem(
                "topic",
                f"{held}, which was deleted and created again since: its records are other ones. "
                f"{_START_OVER.capitalize()}",
            )


def _reads(source: Source, topic: str) -> bool:
    assert isinstance(source.part, TopicStreamPart)
    return source.part.reads(topic)


def _fails_on_data_loss(source: Source) -> bool:
    assert isinstance(source.part, TopicStreamPart)
    return SourceOptions.for_stream(source.part.stream_options).fail_on_data_loss


def _old_copy(
    checkpoint: FlowCheckpoint, state: CheckpointState, flow: Flow, sources: Sequence[Source], questions: TopicQuestions
) -> Iterator[Problem]:
    for committed in questions.committed(sources[0].name, flow.group_id).values():
        noted = _parse_note(committed)
        if noted is not None and noted[0] == state.query_id and noted[1] > state.committed:
            yield flow.section.problem(
                "checkpoint",
                f"its checkpoint {checkpoint.location} ends with batch {state.committed}, but batch {noted[1]} was "
                "written from it: it is an old copy, and would write the batches between once more. Use the newer one; "
                f"or delete the group {flow.group_id}, if they are to be written again",
            )
            return


def _parse_note(committed: OffsetAndMetadata) -> tuple[str, int] | None:
    try:
        noted = json.loads(committed.metadata or "")
        return str(noted["query"]), int(noted["batch"])
    except (ValueError, KeyError, TypeError):
        return None
