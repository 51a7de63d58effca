"""ottla consume on keys and values that are more than text, and on such as are not what they were said to be."""

from __future__ import annotations

import json
from typing import Any

import pytest

import ottla as client
from tests.schema_registry import running_registry
from tests.unit.cli.commands import Commands
from tests.waiting import repeat_until

SCHEMA = (
    '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, {"name": "of", "type": "string"}]}'
)
READ = ("--from-beginning", "--timeout-ms", "500")


def write(ottla: Commands, topic: str, *values: bytes) -> None:
    with client.Producer(bootstrap_servers=ottla.server) as producer:
        for value in values:
            producer.send(topic, value, partition=0).result()


@pytest.fixture
def topic(ottla: Commands, new_topic: str) -> str:
    ottla.shown("topics", "create", new_topic)
    return new_topic


def test_avro_by_the_schemas_of_a_registry(ottla: Commands, topic: str) -> None:
    pytest.importorskip("fastavro", reason="pip install 'ottla[avro]'")
    with running_registry() as registry:
        schema_id = registry.add(f"{topic}-value", SCHEMA)
        write(ottla, topic, b"\0" + schema_id.to_bytes(4, "big") + b"\x0e\x06ann", b"plain")
        avro = ("--value-deserializer", "avro", "--property", f"schema.registry.url={registry.url}")
        code, shown, error = ottla("consume", topic, *READ, *avro)
        assert (code, shown) == (1, '{\n  "id": 7,\n  "of": "ann"\n}\n')
        assert error.startswith(f"{topic}-0, offset 1: b'plain' is no Avro: ")
        code, shown, error = ottla("consume", topic, *READ, *avro, "-o", "json", "--skip-message-on-error")
        assert code == 0 and json.loads(shown)["value"] == {"id": 7, "of": "ann"}
        assert error.splitlines()[0].startswith(f"{topic}-0, offset 1: ")
    assert ottla("consume", topic, *READ, "--value-deserializer", "avro")[0] == 2
    wrong = ("--property", "schema.registry.url=nowhere")
    assert ottla("consume", topic, *READ, "--value-deserializer", "avro", *wrong)[0] == 2


@pytest.mark.parametrize(
    ("name", "good", "shown"),
    [
        ("long", (7).to_bytes(8, "big"), "7"),
        ("org.apache.kafka.common.serialization.IntegerDeserializer", (7).to_bytes(4, "big"), "7"),
        ("uuid", bytes(range(16)), "00010203-0405-0607-0809-0a0b0c0d0e0f"),
        ("json", b'{"a":[1]}', '{\n  "a": [\n    1\n  ]\n}'),
    ],
)
def test_a_record_that_cannot_be_shown_is_named_after_those_that_can(
    ottla: Commands, topic: str, name: str, good: bytes, shown: str
) -> None:
    write(ottla, topic, good, b"bad", good)
    code, out, error = ottla("consume", topic, *READ, "--value-deserializer", name)
    assert (code, out, error.count("\n")) == (1, f"{shown}\n", 1)
    assert error.startswith(f"{topic}-0, offset 1: ") and "--skip-message-on-error" in error
    code, out, _ = ottla("consume", topic, *READ, "--value-deserializer", name, "--skip-message-on-error")
    assert (code, out) == (0, f"{shown}\n{shown}\n")


def test_what_is_in_the_topic_of_offsets(ottla: Commands, topic: str) -> None:
    ottla.shown("groups", "reset-offsets", f"group-{topic}", "--topic", topic, "--to-offset", "0", "--execute")
    shown: list[dict[str, Any]] = []

    def read_all() -> None:
        # It ends when nothing comes for a while, which says nothing about fifty partitions on a busy machine.
        lines = ottla.shown("consume", "__consumer_offsets", *READ, "--formatter", "offsets").splitlines()
        shown[:] = [line for line in map(json.loads, lines) if line["key"]["data"]["group"] == f"group-{topic}"]

    repeat_until(lambda: bool(shown), read_all)
    (own,) = shown
    assert own["key"] == {"version": 1, "data": {"group": f"group-{topic}", "topic": topic, "partition": 0}}
    assert own["value"]["data"]["offset"] == 0
