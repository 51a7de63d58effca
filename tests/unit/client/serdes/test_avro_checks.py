"""What counts as plainly of a schema: at the bounds of every kind of number, and by its class."""

from __future__ import annotations

import datetime
import math
from typing import Any

import pytest

from ottla.client.serdes.avro_checks import has_large_number, infinities, plain_check

fastavro = pytest.importorskip("fastavro", reason="pip install 'ottla[avro]'")

TOO_LARGE = float.fromhex("0x1.ffffffp127")
LARGEST = math.nextafter(TOO_LARGE, 0)


def is_plain(schema: Any, value: Any) -> bool:
    check = plain_check(fastavro.parse_schema(schema, _write_hint=False))
    assert check is not None
    return check(value)


@pytest.mark.parametrize(("kind", "bits"), [("int", 31), ("long", 63)])
@pytest.mark.parametrize("where", ["alone", "array", "map", "record"])
def test_whole_numbers_have_bounds(kind: str, bits: int, where: str) -> None:
    schema, wrap = {
        "alone": (kind, lambda value: value),
        "array": ({"type": "array", "items": kind}, lambda value: [0, value]),
        "map": ({"type": "map", "values": kind}, lambda value: {"a": value}),
        "record": (
            {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]},
            lambda value: {"a": value},
        ),
    }[where]
    assert is_plain(schema, wrap(2**bits - 1)) and is_plain(schema, wrap(-(2**bits)))
    for wrong in (2**bits, -(2**bits) - 1, 1.0, True, "1", None):
        assert not is_plain(schema, wrap(wrong)), wrong


@pytest.mark.parametrize(
    ("schema", "plain", "unsure"),
    [
        ("double", [1e300, math.inf], [1, True, "1"]),
        ("boolean", [True, False], [0, 1, "no"]),
        ("null", [None], [0, ""]),
        ("float", [0.5, -LARGEST, math.inf, -math.inf], [TOO_LARGE, -TOO_LARGE, 1e300, 1]),
        (
            {"type": "int", "logicalType": "date"},
            [datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29), 5],
            [1.5, datetime.time()],
        ),
        (["null", "double"], [None, 1e300, [1e300], 2**1000], [("double", 1.0)]),
        ({"type": "int", "logicalType": "time-millis"}, [datetime.time()], [datetime.date(2024, 2, 29)]),
        ({"type": "long", "logicalType": "time-micros"}, [datetime.time()], [datetime.date(2024, 2, 29)]),
        *(
            ({"type": "long", "logicalType": name}, [datetime.datetime(2024, 2, 29)], [datetime.date(2024, 2, 29)])
            for name in ("timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros")
        ),
        ({"type": "array", "items": "int"}, [[], (), [1]], ["1", {1: 2}, {1}]),
        ({"type": "array", "items": "string"}, [[], ("a",)], ["abc", {"a": "b"}]),
        ({"type": "array", "items": "double"}, [[], [1.0]], [[1], 1.0]),
        (["null", "int"], [None, 5, 1.5], [("int", 5)]),
        (["null", "float"], [None, 0.5, [LARGEST], 1.0], [("float", 1.0), 1e300, [0.5, -1e300], {"a": 2**128}]),
    ],
)
def test_values_are_plain_by_their_class(schema: Any, plain: list[Any], unsure: list[Any]) -> None:
    assert [value for value in plain if not is_plain(schema, value)] == []
    assert [value for value in unsure if is_plain(schema, value)] == []


def test_what_the_writer_looks_at_itself_needs_no_check() -> None:
    texts = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}
    for schema in ("string", "bytes", {"type": "map", "values": "string"}, texts):
        assert plain_check(fastavro.parse_schema(schema, _write_hint=False)) is None


def test_large_numbers_and_infinite_ones_are_found_at_any_depth() -> None:
    assert has_large_number({"a": [0.5, (1, {"b": -(2**128)})]})
    assert not has_large_number({"a": [0.5, (1, {"b": math.inf})], "c": "text"})
    assert infinities({"a": [math.inf, (-math.inf, 1.0)], "b": "inf", "c": math.nan}) == 2
