"""The columns of a source, and which of them a query may ask for."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from pyspark.sql.types import LongType, StringType, StructField, StructType

from ottla.base.errors import InvalidConfigError
from ottla.spark.source_schema import source_columns, source_schema

PLAIN = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def test_headers_come_only_if_asked_for() -> None:
    assert source_schema(include_headers=False).names == PLAIN
    assert source_schema(include_headers=True).names == [*PLAIN, "headers"]


def test_columns_have_the_types_of_sparks_own_source() -> None:
    assert source_schema(include_headers=True).simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    found = source_columns(source_schema(include_headers=False)).arrow_schema
    assert [str(kind) for kind in found.types] == [
        "binary",
        "binary",
        "string",
        "int32",
        "int64",
        "timestamp[us, tz=UTC]",
        "int32",
    ]


def test_a_query_may_ask_for_some_columns_in_its_own_order() -> None:
    wanted = StructType([source_schema(include_headers=False)[name] for name in ("offset", "key")])
    found = source_columns(wanted)
    assert found.names == ("offset", "key")
    assert found.arrow_schema.names == ["offset", "key"]
    assert source_columns(source_schema(include_headers=True)).names == (*PLAIN, "headers")


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("Offset", LongType(), "records have no column Offset; did you mean offset?"),
        ("nothing-like-it", LongType(), "records have no column nothing-like-it; there are key, value, topic, "),
        ("offset", StringType(), "the column offset is bigint, not string"),
    ],
)
def test_what_no_record_has(name: str, kind: LongType | StringType, words: str) -> None:
    with pytest.raises(InvalidConfigError, match=words) as refusal:
        source_columns(StructType([StructField(name, kind)]))
    assert refusal.value.key == "schema"
