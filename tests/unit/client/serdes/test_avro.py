"""Avro with a registry that is really asked over HTTP: a small one, in this process."""

from __future__ import annotations

import base64
import datetime
import json
import math
from collections.abc import Iterator
from decimal import Decimal
from enum import IntEnum
from typing import Any

import pytest

from ottla.client.errors import SerializationError
from ottla.client.serdes.formats import deserializing, serializing

pytest.importorskip("fastavro")

from ottla.client.serdes.avro import AvroSerde
from ottla.client.serdes.registry import SchemaRegistry, SchemaRegistryError
from tests.schema_registry import Registry, running_registry

POINT: dict[str, Any] = {
    "type": "record",
    "name": "Point",
    "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int", "default": 0}],
}


@pytest.fixture
def server() -> Iterator[Registry]:
    with running_registry() as registry:
        yield registry


def test_a_record_there_and_back_asks_twice_in_all(server: Registry) -> None:
    serde = AvroSerde(SchemaRegistry(server.url), POINT)
    data = serde.serialize("points", {"x": 3, "y": -1})
    assert data == b"\x00" + (100_000).to_bytes(4, "big") + b"\x06\x01"
    assert serde.serialize("points", {"x": 4}) == b"\x00" + (100_000).to_bytes(4, "big") + b"\x08\x00"
    assert [serde.deserialize("points", data) for _ in range(3)] == [{"x": 3, "y": -1}] * 3
    assert serde.serialize("points", None) is None
    assert serde.deserialize("points", None) is None
    assert server.requests == [("POST", "/subjects/points-value/versions"), ("GET", "/schemas/ids/100000")]


def test_caches_are_the_registrys_and_shared(server: Registry) -> None:
    registry = SchemaRegistry(server.url)
    data = AvroSerde(registry, POINT).serialize("points", {"x": 1})
    assert AvroSerde(registry, POINT).serialize("points", {"x": 1}) == data
    assert AvroSerde(registry).deserialize("points", data) == {"x": 1, "y": 0}
    assert AvroSerde(registry).deserialize("points", data) == {"x": 1, "y": 0}
    assert len(server.requests) == 2


def test_keys_and_subjects_of_your_own(server: Registry) -> None:
    registry = SchemaRegistry(server.url)
    AvroSerde(registry, '"string"', field="key").serialize("points", "abc")
    AvroSerde(registry, "string", subject=lambda topic, field: f"all/{field}").serialize("points", "abc")
    assert list(server.subjects) == ["points-key", "all%2Fvalue"]


def test_a_reader_of_a_later_schema(server: Registry) -> None:
    registry = SchemaRegistry(server.url)
    old = {**POINT, "fields": POINT["fields"][:1]}
    data = AvroSerde(registry, old).serialize("points", {"x": 7})
    assert AvroSerde(registry).deserialize("points", data) == {"x": 7}
    assert AvroSerde(registry, reader_schema=POINT).deserialize("points", data) == {"x": 7, "y": 0}


def test_a_schema_that_refers_to_another(server: Registry) -> None:
    server.add("point", json.dumps(POINT))
    line = {"type": "record", "name": "Line", "fields": [{"name": "from", "type": "Point"}]}
    references = [{"name": "Point", "subject": "point", "version": 1}]
    schema_id = server.add("line", json.dumps(line), references=references)
    data = b"\x00" + schema_id.to_bytes(4, "big") + b"\x02\x04"
    assert AvroSerde(SchemaRegistry(server.url)).deserialize("lines", data) == {"from": {"x": 1, "y": 2}}


def test_a_schema_that_must_be_there_already(server: Registry) -> None:
    serde = AvroSerde(SchemaRegistry(server.url), POINT, auto_register=False)
    with pytest.raises(SchemaRegistryError, match=r"subject points-value: .* 404: Schema not found") as caught:
        serde.serialize("points", {"x": 1})
    assert not caught.value.retriable
    server.add("points-value", json.dumps(POINT, separators=(",", ":")))
    assert serde.serialize("points", {"x": 1}) is not None


def test_a_serde_says_when_it_has_to_ask(server: Registry) -> None:
    serde = AvroSerde(SchemaRegistry(server.url), POINT)
    assert not serde.waits_to_serialize("points", None)
    assert serde.waits_to_serialize("points", {"x": 1})
    data = serde.serialize("points", {"x": 1})
    assert not serde.waits_to_serialize("points", {"x": 1})
    assert serde.waits_to_serialize("others", {"x": 1})
    assert not serde.waits_to_deserialize("points", None)
    assert serde.waits_to_deserialize("points", data)
    serde.deserialize("points", data)
    assert not serde.waits_to_deserialize("others", data)
    assert serde.waits_to_deserialize("points", b"\x00\x00\x00\x00\x05")


def test_credentials_are_sent(server: Registry) -> None:
    AvroSerde(SchemaRegistry(server.url, auth=("me", "secret")), POINT).serialize("points", {"x": 1})
    assert server.auth == "Basic " + base64.b64encode(b"me:secret").decode()


def test_credentials_in_an_address_are_used_and_not_shown(server: Registry) -> None:
    address = "http://me:s%40cret%2F@" + server.url.removeprefix("http://")
    registry = SchemaRegistry(address, auth=("me", "s@cret/"))
    AvroSerde(registry, POINT).serialize("points", {"x": 1})
    assert server.auth == "Basic " + base64.b64encode(b"me:s@cret/").decode()
    with pytest.raises(SchemaRegistryError) as refused:
        registry.schema(1)
    with pytest.raises(SchemaRegistryError) as unreachable:
        SchemaRegistry("http://me:s%40cret@127.0.0.1:1/").schema(1)
    assert server.url in str(refused.value)
    assert "http://127.0.0.1:1 " in str(unreachable.value)
    assert "cret" not in f"{refused.value} {unreachable.value}"


@pytest.mark.parametrize(
    "address",
    [
        "me:secret@127.0.0.1:9",
        "ftp://me:secret@host",
        "http://me:secret/@host",
        "http://me:12/secret@host",
        "http://me:12?secret@host",
        "http://me:secret,@host",
        "http://me:secret@host:port",
        ["http://host", "http://me:secret@"],
    ],
)
def test_an_address_that_is_refused_is_not_shown_with_its_password(address: str | list[str]) -> None:
    with pytest.raises(ValueError, match="http://host:8081") as caught:
        SchemaRegistry(address)
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


def test_there_is_one_user_and_password() -> None:
    with pytest.raises(ValueError, match="one user and password") as caught:
        SchemaRegistry("http://me:secret@host", auth=("me", "other"))
    assert "secret" not in str(caught.value)
    with pytest.raises(ValueError, match="one user and password"):
        SchemaRegistry("http://me:secret@host, http://you:secret@host")


def test_credentials_do_not_follow_a_redirect_to_somebody_else(server: Registry) -> None:
    schema_id = server.add("points-value", json.dumps(POINT))
    server.moved_to = f"{server.url}/moved"
    SchemaRegistry(server.url, auth=("me", "secret")).schema(schema_id)
    assert server.auth is not None
    with running_registry() as other:
        other.moved_to = server.moved_to
        SchemaRegistry(other.url, auth=("me", "secret")).schema(schema_id)
        assert other.auth is not None
    assert server.auth is None


@pytest.mark.parametrize("value", [{}, {"x": "three"}, 5, "text", {"x": None}])
def test_values_that_do_not_match_the_schema(server: Registry, value: Any) -> None:
    serialize = serializing("value", AvroSerde(SchemaRegistry(server.url), POINT))
    with pytest.raises(SerializationError, match="points: the value could not be serialized"):
        serialize("points", value)


def test_the_field_that_does_not_match_is_named(server: Registry) -> None:
    serialize = serializing("value", AvroSerde(SchemaRegistry(server.url), POINT))
    for wrong in (2**31, -(2**31) - 1, 1.9, True, Decimal(1), "1"):
        with pytest.raises(SerializationError, match=r"points: the value .*: Point\.y is .* expected int"):
            serialize("points", {"x": 1, "y": wrong})


MANY: dict[str, Any] = {
    "type": "record",
    "name": "Many",
    "namespace": "x",
    "fields": [
        {"name": "long", "type": "long", "default": 0},
        {"name": "float", "type": "float", "default": 0.0},
        {"name": "flag", "type": "boolean", "default": False},
        {"name": "nothing", "type": "null", "default": None},
        {"name": "ints", "type": {"type": "array", "items": "int"}, "default": []},
        {"name": "texts", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "longs", "type": {"type": "map", "values": "long"}, "default": {}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": 0},
        {"name": "inner", "type": [{**POINT, "namespace": "x"}, "null"], "default": {"x": 0, "y": 0}},
        {"name": "points", "type": {"type": "array", "items": "x.Point"}, "default": []},
        {"name": "more", "type": {"type": "array", "items": "x.Many"}, "default": []},
        {"name": "some", "type": ["null", "float", {"type": "array", "items": "float"}], "default": None},
        {"name": "any", "type": ["null", "float", "double"], "default": None},
    ],
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"long": 1.5},
        {"long": 2**63},
        {"float": True},
        {"float": "1"},
        {"flag": 1},
        {"flag": "no"},
        {"nothing": 0},
        {"ints": [1, True]},
        {"ints": [2**31]},
        {"ints": (0, -(2**31) - 1)},
        {"ints": {1: 2}},
        {"texts": "abc"},
        {"longs": {"a": 1.0}},
        {"longs": {"a": 2**63}},
        {"day": 1.5},
        {"inner": {"x": 1.5}},
        {"inner": ("x.Point", {"x": 1.5})},
        {"points": [{"x": 1}, {"x": False}]},
        {"more": [{"long": True}]},
        {"float": 1e300},
        {"float": -3.5e38},
        {"float": 2**128},
        {"some": 1e300},
        {"some": [0.5, 1e300]},
        {"some": ("float", 1e300)},
        {"more": [{"some": 1e300}]},
    ],
)
def test_nothing_is_written_as_something_else(server: Registry, wrong: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        AvroSerde(SchemaRegistry(server.url), MANY).serialize("many", wrong)


@pytest.mark.parametrize(
    "right",
    [
        {"long": 2**63 - 1, "float": 0.5, "flag": True, "nothing": None, "texts": ["a"], "unknown": object()},
        {"ints": [1, -(2**31), 2**31 - 1], "longs": {"a": -(2**63)}},
        {"inner": None, "points": [{"x": 1, "y": 2}]},
        {"inner": {"x": 3, "y": 4}, "more": [{"long": 5}]},
        {"day": datetime.date(2024, 2, 29)},
        {"float": math.inf, "some": [-math.inf, 0.0], "any": 1e300},
        {"float": -(2.0**127), "any": ("double", 1e300)},
    ],
)
def test_what_matches_is_written(server: Registry, right: dict[str, Any]) -> None:
    serde = AvroSerde(SchemaRegistry(server.url), MANY)
    read = serde.deserialize("many", serde.serialize("many", right))
    expected = {name: value for name, value in right.items() if name not in ("unknown", "more")}
    if isinstance(right.get("any"), tuple):
        expected["any"] = right["any"][1]
    assert {name: read[name] for name in expected} == expected


def test_numbers_of_other_kinds_are_written(server: Registry) -> None:
    class Color(IntEnum):
        RED = 3

    serde = AvroSerde(SchemaRegistry(server.url), MANY)
    read = serde.deserialize("many", serde.serialize("many", {"long": Color.RED, "float": 2, "day": "2024-02-29"}))
    assert (read["long"], read["float"], read["day"]) == (3, 2.0, datetime.date(2024, 2, 29))


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "not Avro with a schema id"),
        (b"\x00\x00\x01", "not Avro with a schema id"),
        (b'{"x":1}', "begins with 7b2278223a"),
        (b"\x00\x00\x01\x86\xa0", "does not match the schema with id 100000"),
        (b"\x00\x00\x01\x86\xa0\x06", "does not match the schema with id 100000"),
        (b"\x00\x00\x01\x86\xa0\x06\x01\x00", "1 bytes are left"),
    ],
)
def test_data_that_is_not_what_it_says(server: Registry, data: bytes, complaint: str) -> None:
    server.add("points-value", json.dumps(POINT))
    deserialize = deserializing("value", AvroSerde(SchemaRegistry(server.url)))
    with pytest.raises(SerializationError, match=f"points: the value could not be deserialized: .*{complaint}"):
        deserialize("points", data)


def test_schemas_of_other_kinds_and_unknown_ids(server: Registry) -> None:
    schema_id = server.add("points-value", "{}", schemaType="JSON")
    deserialize = deserializing("value", AvroSerde(SchemaRegistry(server.url)))
    with pytest.raises(SerializationError, match="is JSON, not Avro"):
        deserialize("points", b"\x00" + schema_id.to_bytes(4, "big"))
    with pytest.raises(SchemaRegistryError, match=r"schema id 5: .* 404: Schema not found"):
        deserialize("points", b"\x00\x00\x00\x00\x05")


def test_an_incompatible_schema_is_refused(server: Registry) -> None:
    with pytest.raises(SchemaRegistryError, match=r"subject bad-value: .* 409: Schema is incompatible"):
        AvroSerde(SchemaRegistry(server.url), POINT).serialize("bad", {"x": 1})


def test_a_registry_that_fails_or_is_not_there(server: Registry) -> None:
    server.broken = True
    with pytest.raises(SchemaRegistryError, match="500") as caught:
        SchemaRegistry(server.url).schema(1)
    assert caught.value.retriable
    with pytest.raises(SchemaRegistryError, match="cannot be reached") as caught:
        SchemaRegistry("http://127.0.0.1:1").schema(1)
    assert caught.value.retriable
    with pytest.raises(ValueError, match="http://host:8081"):
        SchemaRegistry("registry:8081")


def test_the_next_address_is_tried(server: Registry) -> None:
    schema_id = server.add("points-value", json.dumps(POINT))
    registry = SchemaRegistry(f"http://127.0.0.1:1, {server.url}/")
    assert json.loads(registry.schema(schema_id).text) == POINT


def test_a_serde_without_a_schema_cannot_write(server: Registry) -> None:
    with pytest.raises(SerializationError, match="no schema to write with"):
        serializing("value", AvroSerde(SchemaRegistry(server.url)))("points", {"x": 1})


@pytest.mark.parametrize("auth", ["me:secret", ("me",), ("me", None), ("me", "se", "cret"), 5])
def test_credentials_that_are_no_pair_are_refused_and_not_shown(auth: Any) -> None:
    with pytest.raises(ValueError, match=r"auth=\(user, password\)") as refusal:
        SchemaRegistry("http://localhost:8081", auth=auth)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize("timeout_ms", [0, -1, float("inf")])
def test_a_registry_is_given_some_time(timeout_ms: int) -> None:
    with pytest.raises(ValueError, match="timeout_ms must be above 0"):
        SchemaRegistry("http://localhost:8081", timeout_ms=timeout_ms)
