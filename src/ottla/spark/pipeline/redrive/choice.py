"""Whose dead letters are meant by the name of a flow, and who else reads where they would go."""

from __future__ import annotations

import re

from ottla.client.sync import Admin
from ottla.spark.options import CLIENT_PREFIX
from ottla.spark.pipeline.functions import find_function, inputs_of
from ottla.spark.pipeline.model import Model, Source
from ottla.spark.pipeline.problems import suggestion
from ottla.spark.pipeline.redrive.redrive import LetterBox
from ottla.spark.pipeline.redrive.targets import RedriveError, groups_at
from ottla.spark.pipeline.topic_sink import TopicSink
from ottla.spark.pipeline.topic_source import TopicSource

_WORD = re.compile(r"\w+")


def source_of(model: Model, flow_name: str) -> Source:
    """The source whose letters belong to a flow: that of a flow of dead letters, or the one behind a flow of rows."""
    flow = model.flows.get(flow_name)
    if flow is None:
        raise RedriveError(f"there is no flow {flow_name!r}.{suggestion(flow_name, model.flows)}")
    if flow.takes_dead_letters:
        return model.sources[flow.origin]
    found = [source for source in _sources_behind(model, flow.origin) if _letter_topic(source) is not None]
    if not found:
        raise RedriveError(f"flow {flow_name} has no dead letters: no source that it reads has a 'dead_letter' topic")
    if len(found) > 1:
        flows = ", ".join(f"{source.name}-dead-letters" for source in found)
        raise RedriveError(f"flow {flow_name} reads several sources with dead letters: say which by its flow: {flows}")
    return found[0]


def letter_box(source: Source) -> LetterBox:
    part = source.part
    assert isinstance(part, TopicSource) and part.dead_letter_topic is not None
    sink = part.dead_letter_sink()
    assert isinstance(sink, TopicSink)
    options = {**sink.client_options, **part.client_options}
    settings = {name.removeprefix(CLIENT_PREFIX): text for name, text in options.items()}
    new = next((topic for topic in sink.new_topics if topic.name == part.redrive_topic), None)
    return LetterBox(part.dead_letter_topic, source.section.title, settings, part.redrive_topic, new)


def other_groups(model: Model, source: Source, admin: Admin, topics: list[str]) -> list[str]:
    """The groups to which letters that come to these topics are other records: all but those of the source's flows.

    Where a second source of the pipeline reads one of the topics, its flows are not told from the others.
    """
    parts = [other.part for other in model.sources.values() if other.name != source.name]
    readers = [part for part in parts if isinstance(part, TopicSource)]
    is_shared = any(part.reads(topic) for part in readers for topic in topics)
    own = [flow.group_id for flow in model.flows.values() if not is_shared or flow.origin == source.name]
    return groups_at(admin, topics, except_for=own)


def _letter_topic(source: Source) -> str | None:
    return source.part.dead_letter_topic if isinstance(source.part, TopicSource) else None


def _sources_behind(model: Model, name: str) -> list[Source]:
    """The sources a view is made of, by the names that its queries and functions mention."""
    found: dict[str, Source] = {}
    seen, waiting = set[str](), [name]
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        if one in model.sources:
            found[one] = model.sources[one]
        view = model.views.get(one)
        if view is not None and view.sql is not None:
            waiting += _WORD.findall(view.sql)
        elif view is not None:
            waiting += inputs_of(view, find_function(view))
    return [found[one] for one in sorted(found)]
