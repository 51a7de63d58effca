"""What is put away when a flow has ended well: one consumer group stays of each, the one that shows how far it is.

A topic sink keeps markers in groups of its own, to recognise a batch that comes again. None can come any more when the
checkpoint says that the last batch a sink has begun to commit is done. That it was done is then noted in the flow's own
group, so that an old copy of the checkpoint is recognised.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from ottla.base.errors import OttlaError
from ottla.client.core.consumer.cursors import OffsetAndMetadata
from ottla.spark.group_commits import GroupCommits
from ottla.spark.pipeline.flows.checkpoints import FlowCheckpoint
from ottla.spark.pipeline.flows.continuity import end_note
from ottla.spark.pipeline.model import Flow
from ottla.spark.pipeline.parts import RememberingPart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


def tidy_up(spark: SparkSession, pipeline: str, flow: Flow, sink: RememberingPart, commits: GroupCommits) -> None:
    """What cannot be put away stays until the next good end, or until brokers forget it: nothing depends on it."""
    try:
        state = FlowCheckpoint(spark, flow.checkpoint).state()
        if state is None or state.committed < 0:
            return
        note = json.dumps(end_note(state))
        commits.put(flow.group_id, {one: OffsetAndMetadata(at, metadata=note) for one, at in state.position.items()})
        commits.flush()
        has_own_group = bool(state.position)
        sink.forget_batches(f"{pipeline}-{flow.name}", state.query_id, state.committed, keep_plan=not has_own_group)
    except (OttlaError, OSError, ValueError, KeyError, Py4JError) as e:
        _log.info("helper groups of flow %s stay for now: %s", flow.name, e)
