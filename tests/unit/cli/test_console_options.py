"""Options of ottla produce and consume beyond plain lines, on our own broker; and topics that a pattern matches."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.cli.consume import _check_as_kafka
from ottla.cli.record_forms import DESERIALIZERS, RecordError, deserializer
from tests.unit.cli.commands import Commands

OTTLA = [sys.executable, "-m", "ottla.cli.main"]


def run(ottla: Commands, command: str, *options: str, text: bytes = b"") -> tuple[int, bytes, bytes]:
    arguments = [*OTTLA, command, *options, "--bootstrap-server", ottla.server]
    done = subprocess.run(arguments, input=text, capture_output=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def test_keys_and_headers_come_back_as_json(ottla: Commands, new_topic: str, tmp_path: Path) -> None:
    ottla.shown("topics", "create", new_topic)
    reader = tmp_path / "reader.properties"
    reader.write_text("parse.key=true\nparse.headers=true\n")
    text = b'h1:v1,h2:v2\tk1\t{"a": 1}\nh:x\tk2\tplain\n'
    produced = run(
        ottla, "produce", new_topic, "--reader-config", str(reader), "--producer-property", "acks=1", text=text
    )
    assert produced == (0, b"", b"")
    code, out, _ = run(ottla, "consume", new_topic, "--from-beginning", "--max-messages", "2", "-o", "json")
    first, second = map(json.loads, out.splitlines())
    assert (code, first["topic"], first["partition"], first["offset"]) == (0, new_topic, 0, 0)
    assert (first["key"], first["value"]) == ("k1", {"a": 1})
    assert first["headers"] == [{"name": "h1", "value": "v1"}, {"name": "h2", "value": "v2"}]
    assert (second["key"], second["value"]) == ("k2", "plain")
    options = ("--from-beginning", "--max-messages", "1", "--grep", "pl.in", "--property", "print.topic=true")
    assert run(ottla, "consume", new_topic, *options)[1] == f"Topic:{new_topic}\tplain\n".encode()


def test_a_group_goes_on_where_it_stood(ottla: Commands, new_topic: str, tmp_path: Path) -> None:
    ottla.shown("topics", "create", new_topic)
    assert run(ottla, "produce", new_topic, text=b"one\ntwo\nthree\n")[0] == 0
    settings = tmp_path / "consumer.properties"
    settings.write_text(f"group.id=group-{new_topic}\n")
    in_group = ("--topic", new_topic, "--from-beginning", "--consumer.config", str(settings))
    assert run(ottla, "consume", *in_group, "--max-messages", "2")[1] == b"one\ntwo\n"
    again = ("--topic", new_topic, "--group", f"group-{new_topic}", "--max-messages", "1")
    assert run(ottla, "consume", *again)[1] == b"three\n"
    assert [row["lag"] for row in ottla.json("groups", "describe", f"group-{new_topic}")] == [0]
    offsets = ("__consumer_offsets", "--from-beginning", "--formatter", "offsets", "--timeout-ms", "2000")
    found = [json.loads(line) for line in run(ottla, "consume", *offsets)[1].splitlines()]
    own = [entry for entry in found if entry["key"]["data"]["group"] == f"group-{new_topic}"]
    assert own[-1]["key"]["data"] == {"group": f"group-{new_topic}", "topic": new_topic, "partition": 0}
    assert own[-1]["value"]["data"]["offset"] == 3


def test_where_reading_starts(ottla: Commands, filled: str) -> None:
    tail = run(ottla, "consume", filled, "--tail", "1", "--max-messages", "2")[1]
    assert tail == b"4\n4\n"
    since = ("--partition", "0", "--from-time", "2022-01-01", "--max-messages", "3")
    assert run(ottla, "consume", filled, *since)[1] == b"2\n3\n4\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["consume", "t", "--tail", "1", "--from-beginning"],
        ["consume", "t", "--group", "g", "--tail", "1"],
        ["consume", "t", "--topic", "u"],
        ["consume", "t", "--formatter", "nonsense"],
        ["consume", "t", "--value-deserializer", "nonsense"],
        ["consume", "t", "--consumer-property", "group.di=x"],
        ["consume", "t", "--consumer.config", "/no/such/file"],
        ["consume", "t", "--zookeeper", "localhost:2181"],
        ["produce"],
        ["produce", "t", "--producer.config", "/no/such/file"],
    ],
    ids=" ".join,
)
def test_wrong_use(ottla: Commands, arguments: list[str]) -> None:
    code, shown, error = ottla(*arguments)
    assert code in (1, 2) and shown == ""
    assert "Traceback" not in error and error


def test_deserializers_by_short_name_and_by_class() -> None:
    assert deserializer("long") is DESERIALIZERS["long"]
    by_class = deserializer("org.apache.kafka.common.serialization.IntegerDeserializer")
    assert by_class is not None and by_class(b"\0\0\1\0") == b"256"
    assert DESERIALIZERS["json"](b'{"a":1}') == b'{\n  "a": 1\n}'
    with pytest.raises(RecordError, match="3 bytes are no long"):
        DESERIALIZERS["long"](b"abc")


def test_a_pattern_deletes_only_what_is_meant(ottla: Commands, new_topic: str) -> None:
    names = [f"{new_topic}-{letter}" for letter in "ab"]
    for name in names:
        ottla.shown("topics", "create", name)
    code, _, error = ottla("topics", "delete", f"{new_topic}-.")
    assert code == 2 and all(f"  {name}\n" in error for name in names) and "--yes" in error
    assert ottla.shown("topics", "list", f"{new_topic}-.").split() == names
    done = "".join(f"Deleted topic {name}.\n" for name in names)
    assert ottla("topics", "delete", f"{new_topic}-.", "--yes") == (0, done, "")


def test_settings_of_a_topic_as_old_runbooks_change_them(ottla: Commands, new_topic: str) -> None:
    ottla.shown("topics", "--create", "--topic", new_topic)
    shown = ottla.shown("topics", "--alter", "--topic", new_topic, "--config", "retention.ms=1000")
    assert shown == f"Updated config for topic {new_topic}.\n"
    assert ottla.json("configs", "describe", "topics", new_topic)[0]["value"] == "1000"
    ottla.shown("topics", "--alter", "--topic", new_topic, "--delete-config", "retention.ms")
    assert ottla.json("configs", "describe", "topics", new_topic) == []
    code, _, error = ottla("topics", "describe", f"{new_topic}x")
    assert (code, error) == (1, f"topic '{new_topic}x' does not exist; did you mean '{new_topic}'?\n")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"topic": "t"}, None),
        ({"include": "t.*"}, None),
        ({}, "Exactly one of --include/--topic is required. "),
        ({"topic": "t", "include": "t.*"}, "Exactly one of --include/--topic is required. "),
        ({"include": "t.*", "partition": 0}, "The topic is required when partition is specified."),
        ({"topic": "t", "partition": 0}, None),
        ({"topic": "t", "offset": "5"}, "The partition is required when offset is specified."),
        ({"topic": "t", "partition": 0, "offset": "5"}, None),
        ({"topic": "t", "partition": 0, "offset": "earliest"}, None),
        ({"topic": "t", "partition": 0, "offset": "latest"}, None),
        ({"topic": "t", "partition": 0, "offset": "-5"}, "The provided offset value '-5' is incorrect. "),
        ({"topic": "t", "partition": 0, "offset": "newest"}, "The provided offset value 'newest' is incorrect. "),
        (
            {"topic": "t", "partition": 0, "offset": "5", "from_beginning": True},
            "Options from-beginning and offset cannot be specified together.",
        ),
        (
            {"topic": "t", "partition": 0, "group": "g"},
            "Options group and partition cannot be specified together.",
        ),
        ({"topic": "t", "group": "g", "from_beginning": True}, None),
    ],
)
def test_what_kafkas_consumer_refuses(given: dict[str, Any], complaint: str | None) -> None:
    complaints: list[str] = []
    made: Any = SimpleNamespace(error=complaints.append)
    nothing = dict.fromkeys(("topic", "include", "partition", "offset", "group")) | {"from_beginning": False}
    _check_as_kafka(made, Namespace(**{**nothing, **given}))
    assert [told[: len(complaint or "")] for told in complaints[:1]] == ([] if complaint is None else [complaint])
