"""Options of the source: what they mean, and what is refused with which words."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import InvalidConfigError
from ottla.base.types import TopicPartition
from ottla.spark.offset_places import (
    EARLIEST,
    LATEST,
    Assign,
    AtEdge,
    AtGroup,
    AtOffsets,
    AtTime,
    AtTimes,
    Subscribe,
    SubscribePattern,
    parse_offsets,
)
from ottla.spark.offsets import to_json
from ottla.spark.options import SourceOptions, client_properties, parse_duration_ms

SERVERS = {"kafka.bootstrap.servers": "h:9092"}
TOPIC = {**SERVERS, "subscribe": "t"}


def test_defaults_of_a_stream_and_of_a_batch_query() -> None:
    stream = SourceOptions.for_stream(TOPIC)
    assert stream.selection == Subscribe(("t",))
    assert (stream.starting, stream.ending) == (AtEdge(LATEST), AtEdge(LATEST))
    assert stream.fail_on_data_loss and not stream.include_headers and not stream.reads_committed
    assert stream.max_trigger_delay_ms == 15 * 60_000
    assert SourceOptions.for_batch(TOPIC).starting == AtEdge(EARLIEST)


def test_names_of_options_have_no_case() -> None:
    parsed = SourceOptions.for_stream(
        {
            "KAFKA.Bootstrap.Servers": "h:1",
            "SUBSCRIBE": "a, b,,a",
            "maxoffsetspertrigger": "7",
            "includeHEADERS": "TRUE",
        }
    )
    assert parsed.selection == Subscribe(("a", "b"))
    assert parsed.max_offsets_per_trigger == 7
    assert parsed.include_headers
    assert parsed.client == {"bootstrap.servers": "h:1"}


@pytest.mark.parametrize(
    ("options", "starting"),
    [
        ({"startingOffsets": " Earliest "}, AtEdge(EARLIEST)),
        ({"startingOffsets": "latest"}, AtEdge(LATEST)),
        ({"startingOffsets": "group:My Group"}, AtGroup("My Group")),
        (
            {"startingOffsets": '{"t": {"0": 5, "1": -1, "2": -2}}'},
            AtOffsets({TopicPartition("t", 0): 5, TopicPartition("t", 1): LATEST, TopicPartition("t", 2): EARLIEST}),
        ),
        ({"startingTimestamp": "1700000000000"}, AtTime(1_700_000_000_000)),
        ({"startingOffsetsByTimestamp": '{"t": {"0": 12}}'}, AtTimes({TopicPartition("t", 0): 12})),
    ],
)
def test_where_a_stream_starts(options: dict[str, str], starting: object) -> None:
    assert SourceOptions.for_stream({**TOPIC, **options}).starting == starting


def test_how_partitions_are_chosen() -> None:
    chosen = SourceOptions.for_batch({**SERVERS, "assign": '{"b": [1, 0, 1], "a": [3]}'}).selection
    assert chosen == Assign((TopicPartition("a", 3), TopicPartition("b", 0), TopicPartition("b", 1)))
    pattern = SourceOptions.for_batch({**SERVERS, "subscribePattern": "t.+"}).selection
    assert isinstance(pattern, SubscribePattern)
    assert [name for name in ("t", "ta", "at", "tab") if pattern.matches(name)] == ["ta", "tab"]


def test_settings_of_the_client_are_passed_on() -> None:
    parsed = SourceOptions.for_stream(
        {**TOPIC, "kafka.isolation.level": "read_committed", "kafka.client.id": "me", "kafka.group.id": "mine"}
    )
    assert parsed.reads_committed
    assert parsed.client == {"bootstrap.servers": "h:9092", "isolation.level": "read_committed", "client.id": "me"}


def test_settings_of_the_client_may_be_secret_and_are_not_shown() -> None:
    assert "h:9092" not in repr(SourceOptions.for_stream(TOPIC))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "exactly one of subscribe, subscribePattern, assign is needed; none is given"),
        ({"subscribe": "t", "assign": '{"t": [0]}'}, "subscribe and assign are given"),
        ({"subscribe": " , "}, "subscribe names no topic"),
        ({"subscribePattern": ""}, "subscribePattern is empty"),
        ({"subscribePattern": "("}, "subscribePattern is not a regular expression"),
        ({"assign": "t"}, "assign must be JSON like"),
        ({"assign": '{"t": 0}'}, "'t' has no list of partitions"),
        ({"assign": '{"t": [-1]}'}, "'t' has a partition -1"),
        ({"assign": "{}"}, "names no partition"),
        ({"assign": '{"t": [0]}', "startingOffsets": '{"t": {"1": 3}}'}, "an offset for t-1, which is not in assign"),
        ({"startingOffsets": "soon"}, "startingOffsets must be earliest, latest or JSON like"),
        ({"startingOffsets": "group:"}, "startingOffsets names no group"),
        ({"startingOffsets": '{"t": {"x": 1}}'}, "'t' has a partition 'x'"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "partition 0 of 't' has -3"),
        ({"startingOffsets": '{"t": {"0": true}}'}, "partition 0 of 't' has True"),
        ({"startingOffsets": '{"t": 5}'}, "'t' has no object of partitions"),
        (
            {"startingOffsets": "earliest", "startingTimestamp": "5"},
            "startingTimestamp and startingOffsets say different",
        ),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp must be milliseconds since 1970"),
        ({"startingOffsetsByTimestamp": '{"t": {"0": -1}}'}, "partition 0 of 't' has -1"),
        ({"startingOffsetsByTimestampStrategy": "latest"}, "needs startingTimestamp or startingOffsetsByTimestamp"),
        (
            {"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "first"},
            "startingOffsetsByTimestampStrategy must be one of error, latest",
        ),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger must be at least 1"),
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger must be a whole number"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"}, "is more than maxOffsetsPerTrigger (3)"),
        ({"maxTriggerDelay": "5m"}, "maxTriggerDelay does nothing without minOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "9", "maxTriggerDelay": "soon"}, "maxTriggerDelay must be a time like"),
        ({"minPartitions": "-1"}, "minPartitions must be at least 1"),
        ({"maxRecordsPerPartition": "0"}, "maxRecordsPerPartition must be at least 1"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss must be true or false"),
        ({"endingOffsets": "latest"}, "endingOffsets is for batch queries"),
        ({"startingOfsets": "earliest"}, "unknown source option startingOfsets; did you mean startingOffsets?"),
        ({"topic": "t"}, "unknown source option topic; known are subscribe,"),
        ({"bootstrap.servers": "h:1"}, "did you mean kafka.bootstrap.servers?"),
        ({"kafka.bootstrap.servers": ""}, "the option kafka.bootstrap.servers is missing"),
        ({"kafka.auto.offset.reset": "earliest"}, "use startingOffsets"),
        ({"kafka.enable.auto.commit": "true"}, "the source commits nothing"),
        ({"kafka.value.deserializer": "x"}, "values come as bytes"),
        ({"kafka.isolation.level": "strict"}, "isolation.level must be one of"),
        ({"kafka.fetch.min.byte": "1"}, "did you mean fetch.min.bytes?"),
    ],
)
def test_what_a_stream_refuses(options: dict[str, str], told: str) -> None:
    chosen = options.keys() & {"subscribe", "subscribePattern", "assign"}
    base = SERVERS if chosen or not options else TOPIC
    with pytest.raises(InvalidConfigError) as raised:
        SourceOptions.for_stream({**base, **options})
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets cannot be latest"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "startingOffsets cannot be latest"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be earliest"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "endingOffsets cannot be earliest"),
        ({"endingOffsets": "group:g"}, "endingOffsets cannot be those of a group"),
        ({"endingOffsets": "latest", "endingTimestamp": "5"}, "endingTimestamp and endingOffsets say different"),
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger is for streaming queries"),
    ],
)
def test_what_a_batch_query_refuses(options: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidConfigError) as raised:
        SourceOptions.for_batch({**TOPIC, **options})
    assert told in str(raised.value)


def test_the_client_needs_to_know_where_brokers_are() -> None:
    assert client_properties({"Kafka.acks": "all", "x": "y", **SERVERS}) == {
        "acks": "all",
        "bootstrap.servers": "h:9092",
    }
    with pytest.raises(InvalidConfigError, match=r"kafka\.bootstrap\.servers is missing"):
        client_properties({"subscribe": "t"})


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("250", 250),
        ("250ms", 250),
        ("90s", 90_000),
        ("15m", 900_000),
        ("2 min", 120_000),
        ("1h", 3_600_000),
        ("1d", 86_400_000),
    ],
)
def test_durations(text: str, expected_ms: int) -> None:
    assert parse_duration_ms("maxTriggerDelay", text) == expected_ms


@given(
    st.dictionaries(
        st.builds(TopicPartition, st.text(min_size=1, max_size=5), st.integers(0, 99)),
        st.integers(-2, 2**63 - 1),
        min_size=1,
        max_size=5,
    )
)
def test_offsets_of_a_checkpoint_can_be_given_as_an_option(offsets: dict[TopicPartition, int]) -> None:
    assert parse_offsets("startingOffsets", json.dumps(to_json(offsets))) == AtOffsets(offsets)
