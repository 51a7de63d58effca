"""What fails: what passes by itself is tried again, all else ends the pipeline, and nothing is lost or doubled."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla.spark import track_lag
from ottla.spark.pipeline import Pipeline, PipelineFailedError
from ottla.spark.pipeline.runner import Runner
from tests.broker_process import BrokerProcess
from tests.spark.pipelines import Recorder, Topics

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

DESCRIPTION = """\
name: {name}
checkpoint: state
kafka: {{bootstrap.servers: "{bootstrap}"}}
restart: {{attempts: 3, backoff: 50 ms}}
sources:
  numbers: {{kind: topic, topic: {prefix}-numbers, format: json, schema: n BIGINT}}
views:
  shaky: {{python: "views.py:shaky"}}
  steady: {{sql: SELECT n FROM numbers}}
sinks:
  shaky: {{kind: topic, topic: {prefix}-shaky, format: json, create_partitions: 1}}
  steady: {{kind: topic, topic: {prefix}-steady, format: json, create_partitions: 1}}
flows:
"""
VIEWS = """\
from pathlib import Path

from pyspark.sql import functions as f

FAULTS = {faults!r}


@f.udf("bigint")
def fail_while_told(n):
    for path in sorted(Path(FAULTS).iterdir()):
        kind = path.read_text()
        if kind == "network":
            path.unlink()
            raise ConnectionResetError("the other side has gone")
        if kind == "lasting":
            raise ValueError("this will never do")
    return n


def shaky(numbers):
    return numbers.select(fail_while_told("n").alias("n"))
"""
NOT_THE_SCHEMA = "the value is not a JSON object that fits the schema"


class Shaky:
    """A pipeline; the flow shaky fails as often as there are faults, in each of a task's three attempts."""

    def __init__(self, topics: Topics, directory: Path, flows: Sequence[str] = ("shaky", "steady")) -> None:
        self.topics = topics
        self.faults = directory / "faults"
        self.faults.mkdir()
        (directory / "views.py").write_text(VIEWS.format(faults=str(self.faults)))
        self.path = directory / "shaky.yaml"
        description = DESCRIPTION.format(name=topics.prefix, bootstrap=topics.bootstrap, prefix=topics.prefix)
        self.path.write_text(description + "".join(f"  {flow}: {{from: {flow}, to: {flow}}}\n" for flow in flows))
        topics.create(numbers=1)

    def fail(self, kind: str, times: int = 1) -> None:
        for index in range(times):
            (self.faults / f"{kind}-{index}").write_text(kind)

    def stop_failing(self) -> None:
        for path in self.faults.iterdir():
            path.unlink()

    def run(self, spark: Any) -> Recorder:
        recorder = Recorder()
        self.recorder = recorder
        Pipeline.from_file(self.path).run(spark, once=True, observer=recorder)
        return recorder

    def numbers(self, short: str) -> list[int]:
        return sorted(row["n"] for row in self.topics.values(short))


def test_what_passes_by_itself_is_tried_again(spark: Any, spark_broker: BrokerProcess, tmp_path: Path) -> None:
    shaky = Shaky(Topics(spark_broker.bootstrap, "passing"), tmp_path)
    shaky.topics.send("numbers", [{"n": n} for n in range(100)])
    shaky.fail("network", times=6)  # two runs of the query, each with three attempts of its task
    recorder = shaky.run(spark)
    assert recorder.of("shaky") == ["started", "restarting", "started", "restarting", "started", "ended"]
    assert recorder.of("steady") == ["started", "ended"]
    assert recorder.errors == ["ConnectionResetError: the other side has gone"] * 2
    assert shaky.numbers("shaky") == list(range(100))
    assert shaky.numbers("steady") == list(range(100))


def test_a_flow_that_fails_for_good_ends_all_and_all_go_on_later(
    spark: Any, spark_broker: BrokerProcess, tmp_path: Path
) -> None:
    shaky = Shaky(Topics(spark_broker.bootstrap, "lasting"), tmp_path)
    shaky.topics.send("numbers", [{"n": n} for n in range(100)])
    shaky.fail("lasting")
    with pytest.raises(PipelineFailedError, match="flow shaky failed: ValueError: this will never do") as failure:
        shaky.run(spark)
    assert failure.value.flow == "shaky"
    assert "views.py" in failure.value.details
    assert shaky.recorder.of("shaky") == ["started", "failed"]
    assert shaky.recorder.of("steady") == ["started", "ended"]
    assert shaky.numbers("shaky") == []
    shaky.stop_failing()
    shaky.topics.send("numbers", [{"n": n} for n in range(100, 110)])
    shaky.run(spark)
    assert shaky.numbers("shaky") == list(range(110))
    assert shaky.numbers("steady") == list(range(110))


def test_tries_have_an_end(spark: Any, spark_broker: BrokerProcess, tmp_path: Path) -> None:
    shaky = Shaky(Topics(spark_broker.bootstrap, "endless"), tmp_path, flows=["shaky"])
    shaky.path.write_text(shaky.path.read_text().replace("attempts: 3", "attempts: 1"))
    shaky.topics.send("numbers", [{"n": 1}])
    shaky.fail("network", times=6)
    with pytest.raises(PipelineFailedError, match="ConnectionResetError"):
        shaky.run(spark)
    assert shaky.recorder.of("shaky") == ["started", "restarting", "started", "failed"]


SINKS = {
    "topic": "kind: topic, topic: {prefix}-steady, format: json, create_partitions: 1",
    "console": "kind: console",
    "database": 'kind: database, url: "sqlite:out.db", table: numbers, create: true',
    "files": "kind: files, path: out, format: json",
}


@pytest.mark.parametrize("kind", SINKS)
def test_a_record_that_cannot_be_read_stops_a_flow_that_sets_none_aside(
    spark: Any, spark_broker: BrokerProcess, tmp_path: Path, kind: str
) -> None:
    shaky = Shaky(Topics(spark_broker.bootstrap, f"poisoned-{kind}"), tmp_path, flows=["steady"])
    text = shaky.path.read_text()
    sink = SINKS["topic"].format(prefix=shaky.topics.prefix)
    assert text.count(sink) == 1
    shaky.path.write_text(text.replace(sink, SINKS[kind].format(prefix=shaky.topics.prefix)))
    # Of all rows, a console shows the first: the bad one is behind them.
    shaky.topics.send("numbers", [*({"n": n} for n in range(50)), b"poison"])
    with pytest.raises(PipelineFailedError) as failure:
        shaky.run(spark)
    where = f"topic {shaky.topics.name('numbers')}, partition 0, offset 50"
    assert failure.value.error == f"a record cannot be read: {where}: {NOT_THE_SCHEMA}"


def test_a_running_pipeline_follows_its_topics_until_it_is_stopped(
    spark: Any, spark_broker: BrokerProcess, tmp_path: Path
) -> None:
    shaky = Shaky(Topics(spark_broker.bootstrap, "running"), tmp_path, flows=["steady"])
    recorder = Recorder()
    runners: list[Runner] = []
    started = threading.Event()

    def keep(runner: Runner) -> None:
        runners.append(runner)
        started.set()

    pipeline = Pipeline.from_file(shaky.path)
    thread = threading.Thread(target=lambda: pipeline.run(spark, observer=recorder, on_start=keep))
    thread.start()
    try:
        assert started.wait(120)
        for first in (0, 50):
            shaky.topics.send("numbers", [{"n": n} for n in range(first, first + 50)])
            deadline = time.monotonic() + 120
            while recorder.rows.get("steady", 0) < first + 50 and thread.is_alive():
                assert time.monotonic() < deadline
                time.sleep(0.05)
    finally:
        runners[0].stop()
        thread.join(120)
    assert not thread.is_alive()
    assert shaky.numbers("steady") == list(range(100))
    assert recorder.of("steady") == ["started", "ended"]


def test_queries_outside_of_pipelines_can_be_groups_too(
    spark: Any, spark_broker: BrokerProcess, tmp_path: Path
) -> None:
    from kafka import KafkaAdminClient

    topics = Topics(spark_broker.bootstrap, "tracked")
    topics.create(numbers=2)
    topics.send("numbers", [{"n": n} for n in range(30)], key="n")
    session = spark.newSession()
    tracker = track_lag(session, {"bootstrap.servers": topics.bootstrap})
    try:
        reader = session.readStream.format("ottla").option("kafka.bootstrap.servers", topics.bootstrap)
        frame = reader.option("subscribe", topics.name("numbers")).option("startingOffsets", "earliest").load()
        writer = frame.writeStream.format("noop").queryName("watched").trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "state")).start().awaitTermination()
    finally:
        tracker.close()
    admin = KafkaAdminClient(bootstrap_servers=topics.bootstrap)
    try:
        committed = admin.list_group_offsets("ottla-spark-watched")["ottla-spark-watched"]
    finally:
        admin.close()
    assert sum(found.offset for found in committed.values()) == 30
    assert {at.topic for at in committed} == {topics.name("numbers")}
