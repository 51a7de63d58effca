"""What only a broker or Spark can find wrong with a pipeline is told before anything starts, with file and line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.spark.pipeline import Pipeline, SpecError
from tests.broker_process import BrokerProcess
from tests.spark.pipelines import Topics

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

RIGHT = """\
name: checked
kafka:
  bootstrap.servers: {bootstrap}
sources:
  clicks:
    kind: topic
    topic: {topic}
    format: json
    schema: id BIGINT, who STRING, at TIMESTAMP
tables:
  limits:
    kind: spark
    format: text
    options: {{path: {directory}}}
views:
  counts:
    sql: |
      SELECT who, count(*) AS n
      FROM recent
      GROUP BY who
  recent:
    sql: SELECT * FROM clicks
    watermark: {{column: at, delay: 1 minute}}
  seen:
    python: views.py:seen
sinks:
  results:
    kind: topic
    topic: {topic}
    format: json
    key: who
flows:
  results:
    from: counts
    to: results
    mode: update
  others:
    from: seen
    to: results
"""
VIEWS = """\
def seen(clicks):
    return clicks.select("who")


def unknown_input(nobody):
    return nobody


def no_frame(clicks):
    return 5


def failing(clicks):
    raise ValueError("not today")


def any_input(*frames):
    return frames[0]
"""

MATRIX = [
    # what is replaced, by what, and what is said about it
    (
        "    topic: {topic}\n    format: json\n    schema",
        "    topic: clcks\n    format: json\n    schema",
        "7: source clicks: there is no topic 'clcks'.",
    ),
    (
        "    topic: {topic}\n    format: json\n    key",
        "    topic: nowhere\n    format: json\n    key",
        "29: sink results: there is no topic 'nowhere'.",
    ),
    ("at TIMESTAMP", "at TIMESTAM", "9: source clicks: Unsupported data type"),
    (
        "SELECT who, count(*) AS n",
        "SELECT whom, count(*) AS n",
        "18: view counts: A column, variable, or function parameter with name `whom`",
    ),
    (
        "GROUP BY who\n",
        "GROUP BY whom\n",
        "20: view counts: A column, variable, or function parameter with name `whom`",
    ),
    ("GROUP BY who\n", "GROUP BY (\n", "20: view counts: Syntax error at or near"),
    ("FROM recent", "FROM recnt", "19: view counts: there is no source, table or view 'recnt'. Did you mean 'recent'?"),
    (
        "sql: SELECT * FROM clicks",
        "sql: SELECT nothing(*) FROM clicks",
        "22: view recent: Cannot resolve routine `nothing`",
    ),
    (
        "sql: SELECT * FROM clicks",
        "sql: SELECT clicks.* FROM clicks, counts",
        "view recent: it is made from itself: recent -> counts -> recent",
    ),
    ("column: at", "column: time", "23: view recent: it has no column 'time'."),
    (
        "{{column: at, delay: 1 minute}}",
        "{{column: who, delay: 1 minute}}",
        "23: view recent: The event time `who` has the invalid type",
    ),
    (
        "    watermark: {{column: at, delay: 1 minute}}\n",
        "    deduplicate: [idd]\n",
        "23: view recent: it has no column 'idd'. Did you mean 'id'?",
    ),
    (
        "GROUP BY who\n",
        "GROUP BY who, window(at, '2 secnds')\n",
        "20: view counts: '2 secnds' is not a length of time. Write it as in '10 seconds' or '5 minutes'",
    ),
    ("delay: 1 minute", "delay: 2 secnds", "23: view recent, watermark: 'delay' is not a length of time: '2 secnds'"),
    (
        "kafka:\n",
        "spark:\n  conf:\n    spark.sql.shufle.partitions: 3\nkafka:\n",
        "4: spark.conf: Spark has no setting 'spark.sql.shufle.partitions'. "
        "Did you mean 'spark.sql.shuffle.partitions'?",
    ),
    (
        "kafka:\n",
        "spark:\n  conf:\n    spark.sql.shuffle.partitions: four\nkafka:\n",
        "4: spark.conf: The value 'four' in the config \"spark.sql.shuffle.partitions\" is invalid",
    ),
    ("views.py:seen", "views.py:sen", "25: view seen: views.py has no function 'sen'"),
    ("views.py:seen", "view.py:seen", "25: view seen: there is no file"),
    ("views.py:seen", "no_such_module:seen", "25: view seen: no_such_module cannot be imported"),
    ("views.py:seen", "views.py:unknown_input", "25: view seen: its function asks for 'nobody'"),
    ("views.py:seen", "views.py:no_frame", "25: view seen: its function returned int"),
    ("views.py:seen", "views.py:failing", "25: view seen: its function failed: ValueError: not today"),
    ("views.py:seen", "views.py:any_input", "25: view seen: its function takes any arguments"),
    ("key: who", "key: whom", "31: sink results: the rows have no column 'whom'. Did you mean 'who'?"),
    ("    format: json\n    key: who\n", "", "27: sink results: flow results: the required column value is missing"),
    ("mode: update", "mode: append", "36: flow results: Invalid streaming output mode: append"),
    (
        "sql: SELECT * FROM clicks",
        "sql: SELECT 1 AS id, current_timestamp() AS at, 'a' AS who FROM limits",
        "34: flow results: 'counts' is made of tables alone",
    ),
]


@pytest.fixture(scope="session")
def topic(spark_broker: BrokerProcess) -> str:
    topics = Topics(spark_broker.bootstrap, "checked")
    topics.create(clicks=1)
    return topics.name("clicks")


def check(spark: Any, broker: BrokerProcess, topic: str, directory: Path, text: str) -> None:
    (directory / "views.py").write_text(VIEWS)
    path = directory / "p.yaml"
    path.write_text(text.format(bootstrap=broker.bootstrap, topic=topic, directory=directory))
    Pipeline.from_file(path).check(spark)


def test_the_right_one(spark: Any, spark_broker: BrokerProcess, topic: str, tmp_path: Path) -> None:
    check(spark, spark_broker, topic, tmp_path, RIGHT)
    assert spark.streams.active == []


@pytest.mark.parametrize(("old", "new", "expected"), MATRIX, ids=[expected for _, _, expected in MATRIX])
def test_what_is_wrong_is_told_with_its_line(
    spark: Any, spark_broker: BrokerProcess, topic: str, tmp_path: Path, old: str, new: str, expected: str
) -> None:
    assert RIGHT.count(old) == 1
    with pytest.raises(SpecError) as error:
        check(spark, spark_broker, topic, tmp_path, RIGHT.replace(old, new))
    told = str(error.value).replace(f"{tmp_path}/", "")
    assert expected in told
    assert told.startswith("p.yaml:")
    assert "Traceback" not in told and "SQLSTATE" not in told
    assert spark.streams.active == []


def test_a_cluster_that_is_away(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(RIGHT.format(bootstrap="127.0.0.1:1", topic="x", directory=tmp_path))
    with pytest.raises(SpecError, match=r"p.yaml:7: source clicks: cannot reach 127.0.0.1:1"):
        Pipeline.from_file(path).check(spark)


def test_places_in_python(spark: Any, spark_broker: BrokerProcess, topic: str) -> None:
    pipeline = Pipeline("python", kafka={"bootstrap.servers": spark_broker.bootstrap})
    pipeline.source("clicks", kind="topic", topic=topic)
    pipeline.view("wrong", sql="SELECT valu FROM clicks")
    pipeline.sink("out", kind="console")
    pipeline.flow("wrong", "out")
    with pytest.raises(SpecError, match=r"test_pipeline_checks.py:\d+: view wrong: A column.* `valu`"):
        pipeline.check(spark)
    with pytest.raises(SpecError, match=r"view wrong is there twice; the first is at .*test_pipeline_checks.py:\d+"):
        pipeline.view("wrong", sql="SELECT 1")
