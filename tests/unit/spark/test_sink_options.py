"""What a sink is asked to do, and what it objects to before anything is written."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.errors import InvalidConfigError

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from ottla.spark.sink_options import (
    DEFAULT_TRANSACTION_TIMEOUT_MS,
    Delivery,
    SinkOptions,
    SinkSchemaError,
    check_schema,
)

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
VALUES = StructType().add("value", StringType())
HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))


def parse(schema: StructType = VALUES, default: Delivery = Delivery.EXACTLY_ONCE, **options: str) -> SinkOptions:
    named = {name.replace("_", "."): text for name, text in options.items()}
    return SinkOptions.parse({**SERVERS, "topic": "t", **named}, schema, default=default)


def test_a_streams_defaults() -> None:
    parsed = parse()
    assert (parsed.topic, parsed.delivery, parsed.sink_id) == ("t", Delivery.EXACTLY_ONCE, "ottla-sink")
    assert parsed.producer["transaction.timeout.ms"] == str(DEFAULT_TRANSACTION_TIMEOUT_MS)
    assert parsed.admin == {"bootstrap.servers": "localhost:9092"}


def test_options_as_spark_hands_them_over_in_lower_case() -> None:
    parsed = parse(deliveryguarantee="at-least-once", sinkid="mine", checkpointlocation="/c", kafka_linger_ms="7")
    assert (parsed.delivery, parsed.sink_id, parsed.checkpoint) == (Delivery.AT_LEAST_ONCE, "mine", "/c")
    assert parsed.producer == {"bootstrap.servers": "localhost:9092", "linger.ms": "7"}


def test_settings_go_to_the_client_that_knows_them() -> None:
    given = {
        "kafka_default_api_timeout_ms": "5000",
        "kafka_transaction_timeout_ms": "9000",
        "kafka_client_id": "spark",
        "kafka_compression_type": "zstd",
    }
    parsed = parse(**given)
    assert parsed.admin == {
        "bootstrap.servers": "localhost:9092",
        "default.api.timeout.ms": "5000",
        "client.id": "spark",
    }
    assert parsed.producer == {
        "bootstrap.servers": "localhost:9092",
        "transaction.timeout.ms": "9000",
        "client.id": "spark",
        "compression.type": "zstd",
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tpoic": "t"}, "unknown sink option tpoic; did you mean topic"),
        ({"deliveryGuarantee": "maybe"}, "deliveryGuarantee"),
        ({"sinkId": " "}, "sinkId must not be empty"),
        ({"kafka_transactional_id": "x"}, "kafka.transactional.id cannot be set: .*sinkId"),
        ({"kafka_value_serializer": "x"}, "kafka.value.serializer cannot be set"),
        ({"kafka_acks": "1"}, "transactions need acks=all"),
        ({"kafka_enable_idempotence": "false"}, "transactions need enable.idempotence"),
        ({"kafka_lnger_ms": "1"}, "did you mean linger.ms"),
        ({"kafka_bootstrap_servers": ""}, "kafka.bootstrap.servers is missing"),
    ],
)
def test_options_that_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        parse(**options)


def test_without_transactions_acknowledgements_are_the_users_choice() -> None:
    assert parse(default=Delivery.AT_LEAST_ONCE, kafka_acks="1").producer["acks"] == "1"


def test_all_columns_there_are_and_some_of_no_interest() -> None:
    schema = (
        StructType()
        .add("topic", StringType())
        .add("key", BinaryType())
        .add("value", BinaryType())
        .add("headers", HEADERS)
        .add("partition", IntegerType())
        .add("timestamp", TimestampType())
        .add("offset", LongType())
        .add("colour", MapType(StringType(), StringType()))
    )
    check_schema(schema, has_topic_option=False)


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        (
            "value",
            LongType(),
            r"the column value must be a string or binary, but is bigint: write CAST\(value AS STRING\)",
        ),
        ("value", StructType().add("a", LongType()), r"but is struct<a:bigint>: write to_json\(value\) AS value"),
        ("key", IntegerType(), "the column key must be a string or binary, but is int"),
        ("topic", BinaryType(), "the column topic must be a string, but is binary"),
        ("partition", LongType(), "the column partition must be an int, but is bigint"),
        ("timestamp", LongType(), "the column timestamp must be a timestamp, but is bigint"),
        ("headers", MapType(StringType(), BinaryType()), "the column headers must be an array<struct<key:string,value"),
        ("headers", ArrayType(StringType()), "the column headers must be an array<struct"),
    ],
)
def test_columns_of_the_wrong_type(name: str, kind: Any, message: str) -> None:
    others = StructType() if name == "value" else VALUES
    with pytest.raises(SinkSchemaError, match=message):
        check_schema(StructType([*others.fields]).add(name, kind), has_topic_option=True)


def test_columns_that_are_missing() -> None:
    with pytest.raises(SinkSchemaError, match="neither an option topic nor a column topic"):
        check_schema(VALUES, has_topic_option=False)
    with pytest.raises(SinkSchemaError, match="the required column value is missing; the rows have: key, id"):
        check_schema(StructType().add("key", StringType()).add("id", LongType()), has_topic_option=True)
