"""What is shown of the APIs that a broker speaks, as Kafka's tool writes it and for programs."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.cli.api_versions import _usable, broker_lines, broker_rows
from ottla.client.core.metadata import BrokerAddress
from ottla.wire.apis import API_TABLE, request_class

BROKER = BrokerAddress(7, "host", 9092, "a rack")
PRODUCE, METADATA, API_VERSIONS, UNKNOWN = 0, 3, 18, 999


def test_rows_for_programs() -> None:
    answer = {UNKNOWN: range(2), API_VERSIONS: range(1), METADATA: range(2, 13)}
    assert list(broker_rows(BROKER, answer)) == [
        (7, "host:9092", "Metadata", 3, 2, 12, 12),
        (7, "host:9092", "ApiVersions", 18, 0, 0, 0),
        (7, "host:9092", None, 999, 0, 1, None),
    ]


def test_lines_for_people() -> None:
    first, *lines, last = broker_lines(BROKER, {METADATA: range(2, 13), API_VERSIONS: range(1), PRODUCE: range(90, 92)})
    assert (first, last) == ("host:9092 (id: 7 rack: a rack) -> (", ")")
    keys = sorted(API_TABLE)
    assert len(lines) == len(keys)
    assert lines[0] == "\tProduce(0): 90 to 91 [usable: none],"
    assert lines[1] == "\tFetch(1): UNSUPPORTED,"
    assert lines[keys.index(METADATA)] == "\tMetadata(3): 2 to 12 [usable: 12],"
    assert lines[keys.index(API_VERSIONS)] == "\tApiVersions(18): 0 [usable: 0],"
    assert [line for line in lines if not line.endswith(",")] == [lines[-1]]
    *_, unknown, end = broker_lines(BROKER._replace(rack=None), {UNKNOWN: range(1, 3)})
    assert (unknown, end) == ("\tUnknown(999): 1 to 2 [usable: none]", ")")


def test_a_broker_that_refuses() -> None:
    error = KafkaError("not allowed", code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert list(broker_lines(BROKER._replace(rack=None), error)) == [
        "host:9092 (id: 7 rack: null) -> ERROR: not allowed"
    ]


def test_the_newest_version_that_both_speak() -> None:
    last = request_class(PRODUCE).VERSIONS.stop - 1
    cases = {
        range(last + 1): last,
        range(last, last + 9): last,
        range(last + 1, last + 9): None,
        range(1): 0,
        range(1, last): last - 1,
    }
    assert {theirs: _usable(PRODUCE, theirs) for theirs in cases} == cases
    assert _usable(UNKNOWN, range(5)) is None


@pytest.mark.parametrize("key", sorted(API_TABLE))
def test_every_api_has_a_name(key: int) -> None:
    ((_, _, name, found, *_),) = broker_rows(BROKER, {key: range(1)})
    assert (name, found) == (API_TABLE[key].name, key)
