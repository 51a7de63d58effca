"""What streaming queries of one Python data source share is complete before the first of them starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ottla.spark
from ottla.spark.data_source import FORMAT_NAME
from ottla.spark.pipeline import Pipeline
from ottla.spark.pipeline.frames import Frames
from ottla.spark.shared_environment import PUT_BY_QUERIES, stream_reader
from tests.broker_process import BrokerProcess
from tests.spark.pipelines import Topics

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture
def environment(spark: Any) -> Any:
    """The map of the format "ottla", as it is before any query has run."""
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    found = manager.lookupDataSource(FORMAT_NAME).dataSourceCls().envVars()
    for name in PUT_BY_QUERIES:
        found.pop(name, None)
    return found


def test_a_pipeline_completes_it_before_its_flows_start(
    spark: Any, spark_broker: BrokerProcess, environment: Any
) -> None:
    pipeline = Pipeline("complete", kafka={"bootstrap.servers": spark_broker.bootstrap})
    pipeline.source("events", kind="topic", topic="complete", format="json", schema="id BIGINT")
    pipeline.sink("out", kind="console").flow("events", "out")
    Frames(pipeline.model(), spark.newSession()).build()
    assert set(environment) >= set(PUT_BY_QUERIES)


def test_so_does_a_session_for_queries_without_a_pipeline(spark: Any, environment: Any) -> None:
    ottla.spark.session()
    assert set(environment) >= set(PUT_BY_QUERIES)


def test_a_query_adds_nothing_to_it(spark: Any, spark_broker: BrokerProcess, environment: Any, tmp_path: Path) -> None:
    topics = Topics(spark_broker.bootstrap, "shared-environment")
    topics.create(events=1)
    topics.send("events", [{"n": 1}])
    options = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": topics.name("events")}
    rows = stream_reader(spark, FORMAT_NAME).options(**options, startingOffsets="earliest").load()
    before = set(environment)
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    assert query.lastProgress.numInputRows == 1
    assert set(environment) == before
