"""`ottla pipeline`: the same file on this machine and on a cluster, and what a user gets to see."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.spark.pipeline import Pipeline
from tests.broker_process import BrokerProcess
from tests.spark.pipelines import Topics
from tests.spark.standalone import StandaloneCluster
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

DESCRIPTION = """\
name: counted
checkpoint: ${STATE}
kafka: {bootstrap.servers: nowhere:1}
spark:
  conf:
    spark.sql.shuffle.partitions: 2
    spark.executor.memory: 512m
sources:
  words: {kind: topic, topic: command-words, format: text}
views:
  upper: {python: "views:upper"}
  counts: {sql: "SELECT word, count(*) AS n FROM upper GROUP BY word"}
sinks:
  counts: {kind: topic, topic: "${OUT}", format: json, key: word, create_partitions: 2}
flows:
  counts: {from: counts, to: counts, mode: update}
"""
VIEWS = """\
from pyspark.sql import functions as f


@f.udf("string")
def upper_case(word):
    return word.upper()


def upper(words):
    return words.select(upper_case("value").alias("word"))
"""
WORDS = [b"one", b"two", b"two", b"three", b"three", b"three"] * 100
EXPECTED = {"ONE": 100, "TWO": 200, "THREE": 300}


@pytest.fixture(scope="session")
def topics(spark_broker: BrokerProcess) -> Topics:
    made = Topics(spark_broker.bootstrap, "command")
    made.create(words=3)
    made.send("words", WORDS)
    return made


@pytest.fixture(scope="session")
def description(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("command")
    (directory / "views.py").write_text(VIEWS)
    path = directory / "counted.yaml"
    path.write_text(DESCRIPTION)
    return path


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "ottla", "pipeline", *map(str, arguments)]


def environment(out: str) -> dict[str, str]:
    return {**os.environ, "OUT": f"command-{out}", "STATE": f"state-{out}"}


def counts(topics: Topics, out: str) -> dict[str, int]:
    """The last count of each word: later records of a key replace earlier ones."""
    return {row["word"]: row["n"] for row in topics.values(out)}


@pytest.mark.xdist_group("spark")
def test_on_this_machine(
    spark: SparkSession, topics: Topics, description: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment("local").items():
        monkeypatch.setenv(name, value)
    Pipeline.from_file(description, [("kafka.bootstrap.servers", topics.bootstrap)]).run(spark, once=True)
    assert counts(topics, "local") == EXPECTED


@pytest.mark.xdist_group("spark-drivers")
def test_the_same_file_on_a_cluster_until_a_signal_to_its_group(
    topics: Topics, description: Path, tmp_path: Path
) -> None:
    with StandaloneCluster(tmp_path) as cluster:
        process = subprocess.Popen(
            command(
                *(
                    "run",
                    description,
                    "--master",
                    cluster.master,
                    "--bootstrap-server",
                    topics.bootstrap,
                    "--output",
                    "json",
                ),
                *("--set", "spark.conf.spark.driver.host=127.0.0.1"),
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment("cluster"),
            start_new_session=True,
        )
        told, errors = run_until_all_is_counted(process)
    assert process.returncode == 130
    assert errors == "stopping after the current batch; once more to stop at once\n"
    assert [entry["event"] for entry in told if entry["event"] not in ("progress", "status")] == ["started", "ended"]
    progress = next(entry for entry in told if entry.get("read"))
    assert (progress["flow"], progress["pipeline"], progress["lag"]) == ("counts", "counted", 0)
    assert progress["state_rows"] == 3
    assert told[-1]["total"]["read"] == len(WORDS)
    assert counts(topics, "cluster") == EXPECTED
    work = [entry for worker in tmp_path.glob("worker-*") if worker.is_dir() for entry in worker.iterdir()]
    assert len(work) == 2, "both workers had an executor"


def run_until_all_is_counted(process: subprocess.Popen[str]) -> tuple[list[dict[str, Any]], str]:
    """What the pipeline told until its end, and what it wrote to the standard error. The signal that ends it goes to
    all processes of its group, as Ctrl-C in a terminal does."""
    assert process.stdout is not None and process.stderr is not None
    try:
        rows, told = 0, []
        for line in process.stdout:
            told.append(json.loads(line))
            rows += told[-1].get("read", 0)
            if rows >= len(WORDS):
                os.killpg(process.pid, signal.SIGTERM)
                break
        told += [json.loads(line) for line in process.stdout]
        process.wait(120)
    finally:
        process.kill()
        errors = process.stderr.read()
        process.wait(PATIENCE_S)
    return told, errors


def run(*arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, env={**os.environ, **more}, timeout=120, check=False
    )


@pytest.mark.xdist_group("spark-drivers")
class TestWhatAUserSees:
    def test_a_mistake_in_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "p.yaml"
        path.write_text("name: a\nflows:\n  f: {from: x, to: y, mod: append}\n")
        for subcommand in ("check", "run"):
            done = run(subcommand, path)
            assert (done.returncode, done.stdout) == (1, "")
            assert done.stderr == f"{path}:3: flow f: there is no view or source 'x'.\n"

    def test_a_missing_topic(self, topics: Topics, description: Path) -> None:
        done = run(
            *(
                "check",
                description,
                "--bootstrap-server",
                topics.bootstrap,
                "--set",
                "sources.words.topic=command-wods",
            ),
            OUT="command-x",
            STATE="x",
        )
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("--set sources.words.topic: source words: there is no topic 'command-wods'.")
        assert done.stderr.count("\n") == 1

    def test_no_such_file(self, tmp_path: Path) -> None:
        done = run("run", tmp_path / "none.yaml")
        assert (done.returncode, done.stderr) == (
            1,
            f"{tmp_path}/none.yaml: cannot be read: no such file or directory\n",
        )

    def test_no_java(self, description: Path) -> None:
        done = run("check", description, PATH="/nowhere", JAVA_HOME="/nowhere")
        assert done.returncode == 1
        assert done.stderr == "Spark needs Java 17 or newer; install it, or set JAVA_HOME to where it is\n"

    def test_help_does_without_spark(self) -> None:
        probe = "import sys; from ottla.cli.pipeline import main; code = main(['--help']); "
        check = "sys.exit(code or any(name.split('.')[0] in ('pyspark', 'pandas', 'yaml') for name in sys.modules))"
        done = subprocess.run(
            [sys.executable, "-c", probe + check], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "check" in done.stdout and "run" in done.stdout
