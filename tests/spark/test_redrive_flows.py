"""Bad records by the thousand, a description that is mended, and a redrive: those that can be read now arrive."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla.cli.pipeline import main
from ottla.spark.pipeline import Pipeline
from tests.broker_process import BrokerProcess
from tests.spark.pipelines import Recorder, Topics

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

GOOD, MENDED, BAD = 3000, 2500, 500
"""Records of each source: read at first, read after the description was mended, and never."""
DESCRIPTION = """\
name: {prefix}
checkpoint: state
kafka: {{bootstrap.servers: "{bootstrap}"}}
sources:
  json_events:
    kind: topic
    topic: {prefix}-json
    format: json
    schema: id BIGINT NOT NULL, amount {amount}
    dead_letter: {prefix}-json-bad
    dead_letter_partitions: 2
  avro_events:
    kind: topic
    topic: {prefix}-avro
    format: avro
    schema_file: event.avsc
    dead_letter: {prefix}-avro-bad
    dead_letter_partitions: 1
    {more}
views:
  read: {{sql: "SELECT 'json' AS format, id FROM json_events UNION ALL SELECT 'avro', id FROM avro_events"}}
sinks:
  rows: {{kind: topic, topic: {prefix}-rows, format: json, create_partitions: 1}}
flows:
  rows: {{from: read, to: rows}}
"""
EVENT = {"type": "record", "name": "Event", "fields": [{"name": "id", "type": "long"}]}
LATER_EVENT = {**EVENT, "fields": [*EVENT["fields"], {"name": "note", "type": "string"}]}  # type: ignore[misc]
KINDS = ["good"] * GOOD + ["mended"] * MENDED + ["bad"] * BAD


def json_value(number: int, kind: str) -> bytes:
    if kind == "bad":
        return b'{"id": %d, "amount"' % number
    return json.dumps({"id": number, "amount": 2**40 if kind == "mended" else 1}).encode()


def avro_value(number: int, kind: str) -> bytes:
    """An event that a newer program has written has something after the end of an older one."""
    import fastavro

    if kind == "bad":
        return b"\xff" * 12
    out = io.BytesIO()
    row = {"id": number, "note": "new" * 5}
    fastavro.schemaless_writer(out, LATER_EVENT if kind == "mended" else EVENT, row)
    return out.getvalue()


VALUES = {"json": json_value, "avro": avro_value}


class Scene:
    def __init__(self, topics: Topics, directory: Path) -> None:
        self.topics = topics
        self.directory = directory
        self.path = directory / "events.yaml"
        topics.create(json=2, avro=2)
        for short, value in VALUES.items():
            with ottla.Producer(bootstrap_servers=topics.bootstrap) as producer:
                for number, kind in enumerate(KINDS):
                    key = f"{kind}-{number}".encode()
                    producer.send(topics.name(short), value(number, kind), key=key, partition=number % 2)
        self.describe("INT", EVENT)

    def describe(self, amount: str, event: dict[str, Any], more: str = "") -> None:
        values = {"prefix": self.topics.prefix, "bootstrap": self.topics.bootstrap, "amount": amount, "more": more}
        self.path.write_text(DESCRIPTION.format(**values))
        (self.directory / "event.avsc").write_text(json.dumps(event))

    def run(self, spark: Any) -> None:
        Pipeline.from_file(self.path).run(spark, once=True, observer=Recorder())

    def rows(self) -> Counter[tuple[str, int]]:
        return Counter((row["format"], row["id"]) for row in self.topics.values("rows"))

    def letters(self, short: str) -> list[ottla.ConsumerRecord[bytes, bytes]]:
        return self.topics.records(f"{short}-bad")

    def redrive(self, flow: str, *arguments: str) -> int:
        return main(["redrive", str(self.path), flow, *arguments])


def expected(*kinds: str) -> dict[tuple[str, int], int]:
    return {(short, number): 1 for short in VALUES for number, kind in enumerate(KINDS) if kind in kinds}


def place_of(letter: ottla.ConsumerRecord[bytes, bytes]) -> tuple[str, int, int]:
    facts = {name: (value or b"").decode() for name, value in letter.headers}
    return (
        facts["ottla.dead-letter.topic"],
        int(facts["ottla.dead-letter.partition"]),
        int(facts["ottla.dead-letter.offset"]),
    )


def test_exactly_the_mended_ones_come_back(
    spark: Any, spark_broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = Scene(Topics(spark_broker.bootstrap, "mended"), tmp_path)
    scene.run(spark)
    assert scene.rows() == expected("good")
    injected = Counter(f"{kind}-{number}".encode() for number, kind in enumerate(KINDS) if kind != "good")
    for short in VALUES:
        assert Counter(letter.key for letter in scene.letters(short)) == injected

    scene.describe("BIGINT", LATER_EVENT, f"redrive_topic: {scene.topics.name('again')}")
    assert scene.redrive("rows") == 1
    assert "flow rows reads several sources with dead letters" in capsys.readouterr().err
    scene.topics.create(again=2)
    for flow in ("json_events-dead-letters", "avro_events-dead-letters"):
        assert scene.redrive(flow, "--json") == 0
        assert json.loads(capsys.readouterr().out)["letters"] == MENDED + BAD
        assert scene.redrive(flow, "--json") == 0
        assert json.loads(capsys.readouterr().out)["letters"] == 0
    scene.run(spark)
    assert scene.rows() == expected("good", "mended")
    still_bad = Counter(f"bad-{number}".encode() for number, kind in enumerate(KINDS) if kind == "bad")
    for short in VALUES:
        letters = scene.letters(short)
        assert Counter(letter.key for letter in letters) == injected + still_bad
        places = Counter(place_of(letter) for letter in letters if (letter.key or b"").startswith(b"bad"))
        if short == "avro":
            # What came back to a topic of the source alone says where it was at first.
            assert {topic for topic, _, _ in places} == {scene.topics.name("avro")}
            assert set(places.values()) == {2}
        else:
            assert set(places.values()) == {1}
        assert all(len(letter.headers) == 6 for letter in letters)
    for flow in ("json_events-dead-letters", "avro_events-dead-letters"):
        assert scene.redrive(flow, "--dry-run", "--json") == 0
        assert json.loads(capsys.readouterr().out)["letters"] == BAD
