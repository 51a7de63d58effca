"""Flows that are moved to other offsets, and go on there: exactly once, with and without memory, into every sink."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla.cli.pipeline import main
from ottla.spark.pipeline import Pipeline
from ottla.spark.pipeline.flows.running import flows_run
from tests.broker_process import BrokerProcess
from tests.spark.pipelines import Recorder, Topics

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

DESCRIPTION = """\
name: {prefix}
checkpoint: state
kafka: {{bootstrap.servers: "{bootstrap}"}}
sources:
  numbers: {{kind: topic, topic: {prefix}-numbers, format: json, schema: n BIGINT}}
views:
  unique: {{sql: "SELECT n % 50 AS n FROM numbers", deduplicate: [n]}}
sinks:
  copy: {{kind: topic, topic: {prefix}-copy, format: json, create_partitions: 1}}
  unique: {{kind: topic, topic: {prefix}-unique, format: json, create_partitions: 1}}
  stored: {{kind: database, url: "sqlite:stored.db", table: stored, create: true}}
flows:
  copy: {{from: numbers, to: copy}}
  unique: {{from: unique, to: unique}}
  stored: {{from: numbers, to: stored}}
"""
FLOWS = ("copy", "unique", "stored")


class Scene:
    def __init__(self, topics: Topics, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.topics = topics
        self.directory = directory
        self.capsys = capsys
        self.path = directory / "numbers.yaml"
        self.path.write_text(DESCRIPTION.format(prefix=topics.prefix, bootstrap=topics.bootstrap))
        topics.create(numbers=2)

    def send(self, numbers: Iterable[int]) -> None:
        """Number n is offset n // 2 of partition n % 2, and has the time 1000 n."""
        with ottla.Producer(bootstrap_servers=self.topics.bootstrap) as producer:
            for n in numbers:
                value = json.dumps({"n": n}).encode()
                producer.send(self.topics.name("numbers"), value, partition=n % 2, timestamp_ms=1000 * n)

    def run(self, spark: Any) -> dict[str, int]:
        """How many records each flow has read."""
        recorder = Recorder()
        Pipeline.from_file(self.path).run(spark, once=True, observer=recorder)
        return {flow: recorder.reports[flow].rows.read for flow in FLOWS}

    def command(self, *arguments: str) -> dict[str, Any]:
        assert main([arguments[0], str(self.path), *arguments[1:], "--json"]) == 0
        told: dict[str, Any] = json.loads(self.capsys.readouterr().out)
        return told

    def refused(self, *arguments: str) -> str:
        assert main([arguments[0], str(self.path), *arguments[1:]]) == 1
        told = self.capsys.readouterr()
        assert told.out == ""
        return told.err

    def written(self, short: str) -> Counter[int]:
        return Counter(row["n"] for row in self.topics.values(short))

    def stored(self) -> Counter[int]:
        with sqlite3.connect(self.directory / "stored.db") as connection:
            return Counter(n for (n,) in connection.execute("SELECT n FROM stored"))

    def group(self, group_id: str) -> dict[int, int]:
        with ottla.Admin(bootstrap_servers=self.topics.bootstrap) as admin:
            offsets = admin.list_group_offsets([group_id])[group_id]
        return {one.partition: at.offset for one, at in offsets.items()}

    def set_group(self, group_id: str, offsets: dict[int, int]) -> None:
        placed = {ottla.TopicPartition(self.topics.name("numbers"), one): at for one, at in offsets.items()}
        with ottla.Admin(bootstrap_servers=self.topics.bootstrap) as admin:
            admin.alter_group_offsets(group_id, placed).check()


def test_moved_flows_go_on_where_they_were_put(
    spark: Any, spark_broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = Scene(Topics(spark_broker.bootstrap, "moved"), tmp_path, capsys)
    scene.send(range(200))
    assert "flow copy has not run yet: it will start where" in scene.refused("reset", "copy", "--to-latest")
    assert scene.run(spark) == dict.fromkeys(FLOWS, 200)
    assert scene.written("copy") == scene.stored() == dict.fromkeys(range(200), 1)
    assert scene.written("unique") == dict.fromkeys(range(50), 1)

    # A checkpoint becomes a group's position, and a group's position a checkpoint.
    topic = scene.topics.name("numbers")
    assert scene.command("position", "copy", "--to-group", "moved-reader") == {
        "flow": "copy",
        "batch": 0,
        "position": {topic: {"0": 100, "1": 100}},
        "ends": {topic: {"0": 100, "1": 100}},
        "group": "moved-reader",
        "dry_run": False,
    }
    assert scene.group("moved-reader") == {0: 100, 1: 100}
    scene.set_group("moved-reader", {0: 90, 1: 80})
    with flows_run(Pipeline.from_file(scene.path).model()):
        assert scene.refused("reset", "copy", "--to-earliest") == "flow copy is running: stop the pipeline first\n"
    before = {path: path.read_bytes() for path in (tmp_path / "state" / "copy").rglob("*") if path.is_file()}
    told = scene.command("reset", "copy", "--to-group", "moved-reader", "--dry-run")
    assert (told["after"], told["read_again"], told["passed_over"]) == ({topic: {"0": 90, "1": 80}}, 30, 0)
    assert before == {path: path.read_bytes() for path in (tmp_path / "state" / "copy").rglob("*") if path.is_file()}
    told = scene.command("reset", "copy", "--to-group", "moved-reader")
    assert told["notes"] == [
        "30 offsets are read again: moved-copy keeps what was written before, and their rows come a second time"
    ]
    aside = Path(told["old_checkpoint"])
    assert aside.parent == tmp_path / "state" and aside.name.startswith("copy.before-2")
    assert {path.relative_to(aside): text for path, text in _files(aside).items()} == {
        path.relative_to(tmp_path / "state" / "copy"): text for path, text in before.items()
    }
    assert scene.command("position", "copy")["position"] == {topic: {"0": 90, "1": 80}}
    assert scene.group("ottla-pipeline-moved-copy") == {0: 90, 1: 80}

    told = scene.command("reset", "unique", "--to-time", "1970-01-01T00:03:10")
    assert told["after"] == {topic: {"0": 95, "1": 95}}
    assert "its memory (windows, joins, repetitions) starts empty, with what comes from there on" in told["notes"]
    # One that was moved is moved once more before it has run.
    told = scene.command("reset", "stored", "--to-offsets", json.dumps({topic: {"1": 10}}))
    assert (told["after"], told["read_again"]) == ({topic: {"0": 100, "1": 10}}, 90)
    told = scene.command("reset", "stored", "--to-latest")
    assert told["notes"] == ["90 offsets are passed over: the flow never reads them"]
    told = scene.command("reset", "stored", "--to-earliest")
    assert told["notes"] == ["200 offsets are read again: the rows in stored stay, and theirs are added a second time"]

    scene.send(range(200, 210))
    assert scene.run(spark) == {"copy": 40, "unique": 20, "stored": 210}
    again = [*range(180, 200, 2), *range(161, 200, 2)]
    assert scene.written("copy") == Counter([*range(210), *again])
    assert scene.stored() == Counter([*range(210), *range(200)])
    assert scene.written("unique") == Counter([*range(50), *(n % 50 for n in range(190, 210))])
    assert scene.group("ottla-pipeline-moved-copy") == {0: 105, 1: 105}


def _files(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
