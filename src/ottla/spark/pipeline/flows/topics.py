"""Which topics each flow reads and where they end, asked of their clusters by the driver.

What a flow reads is asked of the plan Spark has made of it, so views may be anything. Nothing here decides what a batch
reads: that is the source's own affair.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import ottla
from ottla.base.types import TopicPartition, Uuid
from ottla.client.core.admin.options import ADMIN_OPTIONS
from ottla.client.core.consumer.cursors import OffsetAndMetadata
from ottla.spark.connections import FAIL_FAST
from ottla.spark.offsets import Offsets
from ottla.spark.options import SourceOptions
from ottla.spark.pipeline.model import Model, Source
from ottla.spark.pipeline.parts import TopicStreamPart
from ottla.spark.topic_offsets import TopicOffsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ASK_TIMEOUT_MS = 2000
_SELECTIONS = ("subscribe", "subscribePattern", "assign", "kafka.bootstrap.servers")


def topic_sources(frame: DataFrame, model: Model) -> list[Source]:
    """The sources of a pipeline that a streaming frame reads, as far as they are topics."""
    by_selection = {
        tuple(source.part.stream_options.get(name) for name in _SELECTIONS): source
        for source in model.sources.values()
        if isinstance(source.part, TopicStreamPart)
    }
    plan: Any = frame._jdf.queryExecution().analyzed()
    leaves = plan.collectLeaves()
    found: dict[str, Source] = {}
    for index in range(leaves.size()):
        leaf = leaves.apply(index)
        if leaf.getClass().getSimpleName() != "StreamingRelationV2":
            continue
        source = by_selection.get(tuple(leaf.extraOptions().get(name) for name in _SELECTIONS))
        if source is not None:
            found[source.name] = source
    return list(found.values())


class TopicQuestions:
    """Asks the clusters of some sources about their topics. OttlaError if one does not answer in time."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self._admins: dict[tuple[tuple[str, str], ...], ottla.Admin] = {}
        self._topics = {
            source.name: self._questions(source.part.stream_options)
            for source in sources
            if isinstance(source.part, TopicStreamPart)
        }

    def _questions(self, options: Mapping[str, str]) -> TopicOffsets:
        parsed = SourceOptions.for_stream(options)
        settings = {name: text for name, text in parsed.client.items() if name in ADMIN_OPTIONS}
        settings |= {**FAIL_FAST, "default.api.timeout.ms": str(ASK_TIMEOUT_MS)}
        key = tuple(sorted(settings.items()))
        if key not in self._admins:
            self._admins[key] = ottla.Admin(settings)
        return TopicOffsets(parsed, self._admins[key])

    def ends(self, source: str) -> Offsets:
        """Where its partitions end now, for a reader of its isolation."""
        return self._topics[source].latest()

    def start(self, source: str) -> Offsets:
        """Where a query without a checkpoint starts."""
        topics = self._topics[source]
        return topics.starting(topics.logs())

    def topic_ids(self, source: str) -> dict[str, Uuid]:
        return self._topics[source].topic_ids()

    def committed(self, source: str, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets of a group in the cluster of a source."""
        return self._topics[source].committed(group_id)

    def close(self) -> None:
        for admin in self._admins.values():
            admin.close()
