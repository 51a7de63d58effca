"""Options of source and sink: whole results, the edges of what is allowed, and which option a refusal names."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    LongType,
    MapType,
    StringType,
    StructType,
)

from ottla.base.errors import InvalidConfigError
from ottla.base.types import TopicPartition
from ottla.spark.offset_places import (
    Assign,
    AtEdge,
    AtGroup,
    AtOffsets,
    AtTime,
    AtTimes,
    Subscribe,
    parse_assign,
    parse_offsets,
    parse_pattern,
    parse_subscribe,
    parse_time,
    parse_times,
)
from ottla.spark.options import SourceOptions, canonical_names, client_properties, parse_duration_ms
from ottla.spark.sink_options import SINK_OPTIONS, Delivery, SinkOptions, SinkSchemaError, check_schema

EARLIEST, LATEST = AtEdge(-2), AtEdge(-1)
SERVERS = {"kafka.bootstrap.servers": "h:9092"}
TOPIC = {**SERVERS, "subscribe": "t"}
MAX_LONG = 2**63 - 1


def key_and_words(refusal: InvalidConfigError) -> tuple[str, str]:
    return refusal.key, str(refusal).removeprefix("INVALID_CONFIG: ")


# The source


def test_a_source_that_is_told_nothing() -> None:
    expected = SourceOptions(
        client={"bootstrap.servers": "h:9092"},
        selection=Subscribe(("t",)),
        starting=LATEST,
        ending=LATEST,
        starting_at_latest_if_none=False,
        max_offsets_per_trigger=None,
        min_offsets_per_trigger=None,
        max_trigger_delay_ms=900_000,
        min_partitions=None,
        max_records_per_partition=None,
        fail_on_data_loss=True,
        include_headers=False,
        poll_timeout_ms=120_000,
        reads_committed=False,
    )
    assert SourceOptions.for_stream(TOPIC) == SourceOptions.for_either(TOPIC) == expected
    assert SourceOptions.for_batch(TOPIC).starting == EARLIEST
    assert SourceOptions.for_batch(TOPIC).ending == LATEST


def test_a_source_that_is_told_everything() -> None:
    given = {
        **SERVERS,
        "kafka.isolation.level": "read_committed",
        "kafka.group.id": "g",
        "assign": '{"t": [1]}',
        "startingTimestamp": "5",
        "startingOffsetsByTimestampStrategy": "latest",
        "maxOffsetsPerTrigger": "20",
        "minOffsetsPerTrigger": "10",
        "maxTriggerDelay": "3s",
        "minPartitions": "4",
        "maxRecordsPerPartition": "6",
        "failOnDataLoss": "false",
        "includeHeaders": "true",
        "kafkaConsumer.pollTimeoutMs": "7",
        "fetchOffset.numRetries": "0",
        "fetchOffset.retryIntervalMs": "0",
        "groupIdPrefix": "p",
    }
    assert SourceOptions.for_stream(given) == SourceOptions(
        client={"bootstrap.servers": "h:9092", "isolation.level": "read_committed"},
        selection=Assign((TopicPartition("t", 1),)),
        starting=AtTime(5),
        ending=LATEST,
        starting_at_latest_if_none=True,
        max_offsets_per_trigger=20,
        min_offsets_per_trigger=10,
        max_trigger_delay_ms=3000,
        min_partitions=4,
        max_records_per_partition=6,
        fail_on_data_loss=False,
        include_headers=True,
        poll_timeout_ms=7,
        reads_committed=True,
    )


@pytest.mark.parametrize(
    ("options", "ending"),
    [
        ({"endingOffsets": "latest"}, LATEST),
        (
            {"endingOffsets": '{"t": {"0": -1, "1": 9}}'},
            AtOffsets({TopicPartition("t", 0): -1, TopicPartition("t", 1): 9}),
        ),
        ({"endingTimestamp": "9"}, AtTime(9)),
        ({"endingOffsetsByTimestamp": '{"t": {"0": 9}}'}, AtTimes({TopicPartition("t", 0): 9})),
    ],
)
def test_where_a_batch_query_ends(options: dict[str, str], ending: object) -> None:
    for parse in (SourceOptions.for_batch, SourceOptions.for_either):
        assert parse({**TOPIC, **options}).ending == ending
    (name,) = options
    with pytest.raises(InvalidConfigError) as refusal:
        SourceOptions.for_stream({**TOPIC, **options})
    assert key_and_words(refusal.value) == (name, f"{name} is for batch queries: a stream has no end")


@pytest.mark.parametrize(
    "options",
    [
        {"maxOffsetsPerTrigger": "5"},
        {"minOffsetsPerTrigger": "5"},
        {"minOffsetsPerTrigger": "5", "maxTriggerDelay": "5"},
    ],
)
def test_the_pace_of_a_stream_is_no_matter_of_a_batch_query(options: dict[str, str]) -> None:
    SourceOptions.for_stream({**TOPIC, **options})
    SourceOptions.for_either({**TOPIC, **options})
    with pytest.raises(InvalidConfigError) as refusal:
        SourceOptions.for_batch({**TOPIC, **options})
    name, *_ = options
    assert key_and_words(refusal.value) == (name, f"{name} is for streaming queries: a batch query reads all at once")
    with pytest.raises(InvalidConfigError, match="maxTriggerDelay is for streaming queries"):
        SourceOptions.for_batch({**TOPIC, "maxTriggerDelay": "5"})


@pytest.mark.parametrize(
    ("options", "moves"),
    [
        ({}, True),
        ({"startingOffsets": "latest"}, True),
        ({"startingOffsets": "earliest"}, False),
        ({"startingOffsets": "group:g"}, False),
        ({"startingOffsets": '{"t": {"0": 5, "1": -1}}'}, True),
        ({"startingOffsets": '{"t": {"0": 5, "1": -2}}'}, False),
        ({"startingTimestamp": "5"}, False),
        ({"startingOffsetsByTimestamp": '{"t": {"0": 5}}'}, False),
        ({"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "error"}, False),
        ({"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "latest"}, True),
        ({"startingOffsetsByTimestamp": '{"t": {"0": 5}}', "startingOffsetsByTimestampStrategy": "latest"}, True),
    ],
)
def test_whether_a_query_starts_at_a_place_that_moves(options: dict[str, str], moves: bool) -> None:
    assert SourceOptions.for_stream({**TOPIC, **options}).starts_at_the_end is moves


@pytest.mark.parametrize(
    "name",
    [
        "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
        "minPartitions",
        "maxRecordsPerPartition",
        "kafkaConsumer.pollTimeoutMs",
    ],
)
def test_numbers_that_are_one_at_least(name: str) -> None:
    assert SourceOptions.for_stream({**TOPIC, name: "1"}) != SourceOptions.for_stream({**TOPIC, name: "2"})
    with pytest.raises(InvalidConfigError, match=f"{name} must be at least 1") as refusal:
        SourceOptions.for_stream({**TOPIC, name: "0"})
    assert refusal.value.key == name


@pytest.mark.parametrize("name", ["fetchOffset.numRetries", "fetchOffset.retryIntervalMs"])
def test_numbers_that_may_be_none(name: str) -> None:
    assert SourceOptions.for_stream({**TOPIC, name: "0"}) == SourceOptions.for_stream(TOPIC)
    with pytest.raises(InvalidConfigError, match=f"{name} must be at least 0"):
        SourceOptions.for_stream({**TOPIC, name: "-1"})


@pytest.mark.parametrize(("fewest", "is_fine"), [("4", True), ("5", True), ("6", False)])
def test_the_fewest_offsets_are_no_more_than_the_most(fewest: str, is_fine: bool) -> None:
    options = {**TOPIC, "maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": fewest}
    if is_fine:
        assert SourceOptions.for_stream(options).min_offsets_per_trigger == int(fewest)
        return
    with pytest.raises(InvalidConfigError) as refusal:
        SourceOptions.for_stream(options)
    assert key_and_words(refusal.value) == (
        "minOffsetsPerTrigger",
        "minOffsetsPerTrigger (6) is more than maxOffsetsPerTrigger (5)",
    )


@pytest.mark.parametrize(
    ("options", "key", "words"),
    [
        (
            {"endingOffsets": "group:g"},
            "endingOffsets",
            "endingOffsets cannot be those of a group; startingOffsets can",
        ),
        (
            {"startingOffsets": '{"t": {"0": 1, "2": 1, "1": 1}}'},
            "assign",
            "there is an offset for t-1, which is not in assign",
        ),
        ({"endingOffsets": '{"u": {"0": 1}}'}, "assign", "there is an offset for u-0, which is not in assign"),
        (
            {"startingOffsets": '{"t": {"0": -1}}'},
            "startingOffsets",
            "startingOffsets cannot be latest (-1) in a batch query",
        ),
        ({"endingOffsets": "earliest"}, "endingOffsets", "endingOffsets cannot be earliest (-2)"),
        (
            {"maxTriggerDelay": "5"},
            "maxTriggerDelay",
            "maxTriggerDelay is for streaming queries: a batch query reads all at once",
        ),
        (
            {"startingOffsets": "earliest", "startingOffsetsByTimestampStrategy": "latest"},
            "startingOffsetsByTimestampStrategy",
            "startingOffsetsByTimestampStrategy needs startingTimestamp or startingOffsetsByTimestamp",
        ),
        (
            {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"t": {"0": 1}}', "startingTimestamp": "1"},
            "startingTimestamp",
            "startingTimestamp and startingOffsetsByTimestamp and startingOffsets say different things; "
            "give only one of them",
        ),
        (
            {"endingOffsets": "latest", "endingOffsetsByTimestamp": '{"t": {"0": 1}}'},
            "endingOffsetsByTimestamp",
            "endingOffsetsByTimestamp and endingOffsets say different things; give only one of them",
        ),
        (
            {"subscribe": "t", "subscribePattern": "t"},
            "subscribe",
            "exactly one of subscribe, subscribePattern, assign is needed; subscribe and subscribePattern and assign "
            "are given",
        ),
    ],
)
def test_what_a_batch_query_of_some_partitions_refuses(options: dict[str, str], key: str, words: str) -> None:
    with pytest.raises(InvalidConfigError) as refusal:
        SourceOptions.for_batch({**SERVERS, "assign": '{"t": [0, 2]}', **options})
    assert key_and_words(refusal.value) == (key, words)


def test_partitions_without_an_offset_are_looked_at_later() -> None:
    """Whether offsets are complete is seen when it is known which partitions there are."""
    for option in ("startingOffsets", "endingOffsets"):
        SourceOptions.for_batch({**SERVERS, "assign": '{"t": [0, 2]}', option: '{"t": {"0": 1}}'})
        SourceOptions.for_batch({**TOPIC, option: '{"u": {"0": 1}}'})


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("auto.offset.reset", "use startingOffsets to say where to start"),
        ("enable.auto.commit", "the source commits nothing; Spark's checkpoint remembers how far it has come"),
        ("key.deserializer", "keys come as bytes; use Spark's functions to read them"),
        ("value.deserializer", "values come as bytes; use Spark's functions to read them"),
        ("interceptor.classes", "interceptors do not see the source's records"),
    ],
)
def test_settings_of_the_client_that_are_the_sources_own(name: str, instead: str) -> None:
    with pytest.raises(InvalidConfigError) as refusal:
        SourceOptions.for_either({**TOPIC, f"kafka.{name}": "x"})
    assert key_and_words(refusal.value) == (f"kafka.{name}", f"kafka.{name} cannot be set: {instead}")


def test_where_the_brokers_are_has_to_be_said() -> None:
    for options in ({}, {"kafka.bootstrap.servers": " "}, {"bootstrap.servers": "h:1"}):
        with pytest.raises(InvalidConfigError) as refusal:
            client_properties(options)
        assert key_and_words(refusal.value) == (
            "kafka.bootstrap.servers",
            "the option kafka.bootstrap.servers is missing: name the host:port of a broker or more, with commas",
        )


def test_options_by_the_names_they_are_known_by() -> None:
    assert canonical_names({"TOPIC": "t", "kafka.x": "1", "SinkID": "s"}, SINK_OPTIONS) == {"topic": "t", "sinkId": "s"}
    with pytest.raises(InvalidConfigError) as refusal:
        canonical_names({"sinkIdd": "s"}, SINK_OPTIONS)
    assert key_and_words(refusal.value) == ("sinkIdd", "unknown sink option sinkIdd; did you mean sinkId?")
    with pytest.raises(InvalidConfigError) as refusal:
        canonical_names({"zzz": "s"}, SINK_OPTIONS)
    assert key_and_words(refusal.value) == (
        "zzz",
        "unknown sink option zzz; known are topic, deliveryGuarantee, sinkId, checkpointLocation, path, queryName, "
        "kafka.bootstrap.servers",
    )


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("0", 0),
        ("1ms", 1),
        ("2s", 2_000),
        ("3m", 180_000),
        ("3min", 180_000),
        (" 3 MIN ", 180_000),
        ("4h", 14_400_000),
        ("5d", 432_000_000),
        (str(MAX_LONG), MAX_LONG),
    ],
)
def test_durations(text: str, expected_ms: int) -> None:
    assert parse_duration_ms("x", text) == expected_ms


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "x must be a time like 500ms, 90s, 15m, 2h or 1d, but was ''"),
        ("5y", "x must be a time like 500ms, 90s, 15m, 2h or 1d, but was '5y'"),
        ("-5s", "x must be a time like 500ms, 90s, 15m, 2h or 1d, but was '-5s'"),
        (str(MAX_LONG + 1), "x is more than 64 bits of milliseconds"),
        (f"{MAX_LONG}s", "x is more than 64 bits of milliseconds"),
    ],
)
def test_what_is_no_duration(text: str, words: str) -> None:
    with pytest.raises(InvalidConfigError) as refusal:
        parse_duration_ms("x", text)
    assert key_and_words(refusal.value) == ("x", words)


# Places


def test_places_as_text() -> None:
    assert parse_subscribe("x", " b ,a,, b") == Subscribe(("b", "a"))
    assert parse_pattern("x", " a.* ").pattern == "a.*"
    assert parse_assign("x", '{"b": [1, 0, 1], "a": [0]}') == Assign(
        (TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("b", 1))
    )
    assert parse_offsets("x", " LATEST ") == LATEST
    assert parse_offsets("x", "EARLIEST") == EARLIEST
    assert parse_offsets("x", " Group: My Group ") == AtGroup("My Group")
    edges = {"0": -2, "1": -1, "2": 0, "3": MAX_LONG}
    assert parse_offsets("x", json.dumps({"t": edges})) == AtOffsets(
        {TopicPartition("t", int(index)): at for index, at in edges.items()}
    )
    assert parse_time("x", " 0 ") == AtTime(0)
    assert parse_time("x", str(MAX_LONG)) == AtTime(MAX_LONG)
    assert parse_times("x", json.dumps({"t": {"0": 0, "7": MAX_LONG}})) == AtTimes(
        {TopicPartition("t", 0): 0, TopicPartition("t", 7): MAX_LONG}
    )


ASSIGN = 'x must be JSON like {"topic": [0, 1]}'
OFFSETS = 'x must be earliest, latest or JSON like {"topic": {"0": 23}}'
TIMES = 'x must be JSON like {"topic": {"0": 1700000000000}}, in milliseconds since 1970'


@pytest.mark.parametrize(
    ("parse", "text", "words"),
    [
        (parse_subscribe, " ,", "x names no topic; give one, or several with commas between them"),
        (parse_pattern, " ", "x is empty; give a regular expression for whole topic names"),
        (parse_assign, "t", f"{ASSIGN}, but was 't'"),
        (parse_assign, "[0]", f"{ASSIGN}, but was '[0]'"),
        (parse_assign, '{"t": {"0": 1}}', f"{ASSIGN}, but 't' has no list of partitions"),
        (parse_assign, '{"t": []}', f"{ASSIGN}, but 't' has no list of partitions"),
        (parse_assign, '{"t": [0, -1]}', f"{ASSIGN}, but 't' has a partition -1"),
        (parse_assign, '{"t": [true]}', f"{ASSIGN}, but 't' has a partition True"),
        (parse_assign, '{"t": ["0"]}', f"{ASSIGN}, but 't' has a partition '0'"),
        (parse_assign, '{"t": [1.0]}', f"{ASSIGN}, but 't' has a partition 1.0"),
        (parse_assign, "{}", f"{ASSIGN}, but names no partition"),
        (parse_offsets, "group: ", "x names no group after 'group:'"),
        (parse_offsets, "5", f"{OFFSETS}, but was '5'"),
        (parse_offsets, '{"t": [5]}', f"{OFFSETS}, but 't' has no object of partitions"),
        (parse_offsets, '{"t": {"-1": 5}}', f"{OFFSETS}, but 't' has a partition '-1'"),
        (parse_offsets, '{"t": {"0": -3}}', f"{OFFSETS}, but partition 0 of 't' has -3"),
        (parse_offsets, '{"t": {"0": 9223372036854775808}}', f"{OFFSETS}, but partition 0 of 't' has {2**63}"),
        (parse_offsets, '{"t": {"0": null}}', f"{OFFSETS}, but partition 0 of 't' has None"),
        (parse_offsets, '{"t": {"0": false}}', f"{OFFSETS}, but partition 0 of 't' has False"),
        (parse_offsets, '{"t": {}}', f"{OFFSETS}, but names no partition"),
        (parse_time, "-1", "x must be milliseconds since 1970, but was '-1'"),
        (parse_time, str(2**63), f"x must be milliseconds since 1970, but was '{2**63}'"),
        (parse_times, '{"t": {"0": -1}}', f"{TIMES}, but partition 0 of 't' has -1"),
        (parse_times, "latest", f"{TIMES}, but was 'latest'"),
    ],
)
def test_what_is_no_place(parse: Any, text: str, words: str) -> None:
    with pytest.raises(InvalidConfigError) as refusal:
        parse("x", text)
    assert key_and_words(refusal.value) == ("x", words)


# The sink

VALUES = StructType().add("value", StringType())


@pytest.mark.parametrize(
    ("delivery", "timeout"),
    [(Delivery.EXACTLY_ONCE, {"transaction.timeout.ms": "600000"}), (Delivery.AT_LEAST_ONCE, {})],
)
def test_a_sink_that_is_told_nothing(delivery: Delivery, timeout: dict[str, str]) -> None:
    schema = StructType().add("value", BinaryType()).add("topic", StringType())
    assert SinkOptions.parse(SERVERS, schema, default=delivery) == SinkOptions(
        topic=None,
        delivery=delivery,
        sink_id="ottla-sink",
        names_sink=False,
        producer={"bootstrap.servers": "h:9092", **timeout},
        admin={"bootstrap.servers": "h:9092"},
        checkpoint=None,
    )


@pytest.mark.parametrize("delivery", Delivery)
def test_a_sink_that_is_told_everything(delivery: Delivery) -> None:
    given = {
        **SERVERS,
        "kafka.default.api.timeout.ms": "9000",
        "topic": "t",
        "deliveryGuarantee": delivery.value,
        "sinkId": " mine ",
        "checkpointLocation": "/c",
        "path": "/p",
        "queryName": "q",
    }
    timeout = {"transaction.timeout.ms": "600000"} if delivery is Delivery.EXACTLY_ONCE else {}
    for default in Delivery:
        assert SinkOptions.parse(given, VALUES, default=default) == SinkOptions(
            topic="t",
            delivery=delivery,
            sink_id="mine",
            names_sink=True,
            producer={"bootstrap.servers": "h:9092", **timeout},
            admin={"bootstrap.servers": "h:9092", "default.api.timeout.ms": "9000"},
            checkpoint="/c",
        )


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("transactional.id", "the sink makes one for each task; sinkId says what they begin with"),
        ("key.serializer", "keys are written as they are; use Spark's functions to turn them into text or bytes"),
        ("value.serializer", "values are written as they are; use Spark's functions to turn them into text or bytes"),
        ("interceptor.classes", "interceptors do not see the sink's records"),
    ],
)
@pytest.mark.parametrize("delivery", Delivery)
def test_settings_of_the_client_that_are_the_sinks_own(delivery: Delivery, name: str, instead: str) -> None:
    with pytest.raises(InvalidConfigError) as refusal:
        SinkOptions.parse({**SERVERS, "topic": "t", f"kafka.{name}": "x"}, VALUES, default=delivery)
    assert key_and_words(refusal.value) == (f"kafka.{name}", f"kafka.{name} cannot be set: {instead}")


def test_a_sink_without_a_name_is_refused() -> None:
    with pytest.raises(InvalidConfigError) as refusal:
        SinkOptions.parse({**SERVERS, "topic": "t", "sinkId": "  "}, VALUES, default=Delivery.AT_LEAST_ONCE)
    assert key_and_words(refusal.value) == ("sinkId", "sinkId must not be empty")


HEADERS = StructType().add("key", StringType()).add("value", BinaryType())


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("key", StructType(), "a string or binary, but is struct<>: write to_json(key) AS key"),
        ("key", ArrayType(LongType()), "a string or binary, but is array<bigint>: write to_json(key) AS key"),
        ("value", ArrayType(LongType()), "a string or binary, but is array<bigint>: write to_json(value) AS value"),
        (
            "key",
            MapType(StringType(), LongType()),
            "a string or binary, but is map<string,bigint>: write CAST(key AS STRING)",
        ),
        ("value", BooleanType(), "a string or binary, but is boolean: write CAST(value AS STRING)"),
        ("topic", ArrayType(LongType()), "a string, but is array<bigint>: write CAST(topic AS STRING)"),
        ("partition", StringType(), "an int, but is string"),
        ("timestamp", StringType(), "a timestamp, but is string"),
        ("headers", HEADERS, "an array<struct<key:string,value:binary>>, but is struct<key:string,value:binary>"),
        (
            "headers",
            ArrayType(StructType(HEADERS.fields[:1])),
            "an array<struct<key:string,value:binary>>, but is array<struct<key:string>>",
        ),
        (
            "headers",
            ArrayType(StructType(HEADERS.fields[::-1])),
            "an array<struct<key:string,value:binary>>, but is array<struct<value:binary,key:string>>",
        ),
    ],
)
def test_columns_of_the_wrong_kind(name: str, kind: Any, words: str) -> None:
    others = [] if name == "value" else VALUES.fields
    with pytest.raises(SinkSchemaError) as refusal:
        check_schema(StructType([*others]).add(name, kind), has_topic_option=True)
    assert str(refusal.value) == f"the column {name} must be {words}"


@pytest.mark.parametrize(
    ("names", "has_option", "words"),
    [
        (["value"], True, None),
        (["value", "topic"], False, None),
        (["value", "topic"], True, None),
        (
            ["value"],
            False,
            "there is neither an option topic nor a column topic: set the option, or add a column with the topic of "
            "each row",
        ),
        ([], True, "the required column value is missing; the rows have: none"),
        (["key", "topic"], False, "the required column value is missing; the rows have: key, topic"),
    ],
)
def test_columns_a_sink_needs(names: list[str], has_option: bool, words: str | None) -> None:
    schema = StructType()
    for name in names:
        schema = schema.add(name, StringType())
    if words is None:
        check_schema(schema, has_topic_option=has_option)
        return
    with pytest.raises(SinkSchemaError) as refusal:
        check_schema(schema, has_topic_option=has_option)
    assert str(refusal.value) == words
