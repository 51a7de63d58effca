"""Our declarations against two codecs that others wrote from Kafka's own message definitions, both ways.

Messages come from their definitions, so that a field we forgot or misplaced cannot hide. Between them they know all
that we declare, except what is listed below by name.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from kio.schema.index import api_key_map

from ottla.wire.apis import API_TABLE, request_class, response_class
from ottla.wire.fields import Field
from ottla.wire.header import RequestHeaderMessage, ResponseHeaderMessage
from ottla.wire.message import Message, Struct
from tests.architecture.codecs.kafka_python_codec import KafkaPython
from tests.architecture.codecs.kio_codec import Kio
from tests.architecture.codecs.oracle import Oracle, Values, bare_name
from tests.unit.wire.random_messages import stored_classes

ROUNDS = 6

ORACLES: dict[str, Oracle] = {"kio": Kio(), "kafka-python": KafkaPython()}

UNKNOWN_TO_BOTH = {
    "ConsumerGroupDescribeRequest": [1],
    "ConsumerGroupDescribeResponse": [1],
    "ConsumerGroupHeartbeatRequest": [1],
    "ConsumerGroupHeartbeatResponse": [1],
    # What brokers keep in their own topics and files is no part of the protocol: Kafka's own tools read that in other
    # tests, and golden bytes are in tests/unit/wire.
    "ConsumerGroupCurrentMemberAssignmentKey": [8],
    "ConsumerGroupCurrentMemberAssignmentValue": [0],
    "ConsumerGroupMemberMetadataKey": [5],
    "ConsumerGroupMemberMetadataValue": [0],
    "ConsumerGroupMetadataKey": [3],
    "ConsumerGroupMetadataValue": [0],
    "ConsumerGroupPartitionMetadataKey": [4],
    "ConsumerGroupPartitionMetadataValue": [0],
    "ConsumerGroupTargetAssignmentMemberKey": [7],
    "ConsumerGroupTargetAssignmentMemberValue": [0],
    "ConsumerGroupTargetAssignmentMetadataKey": [6],
    "ConsumerGroupTargetAssignmentMetadataValue": [0],
    "GroupMetadataKey": [2],
    "GroupMetadataValue": [0, 1, 2, 3, 4],
    "OffsetCommitKey": [0, 1],
    "OffsetCommitValue": [0, 1, 2, 3, 4],
    "ProducerSnapshot": [1],
    "TransactionLogKey": [0],
    "TransactionLogValue": [0, 1],
}
"""Versions that cannot be compared. An oracle that comes to know one of them makes the last test fail."""


def messages() -> dict[str, type[Message]]:
    found: dict[str, type[Message]] = {"RequestHeader": RequestHeaderMessage, "ResponseHeader": ResponseHeaderMessage}
    for info in API_TABLE.values():
        found[f"{info.name}Request"] = request_class(info.key)
        found[f"{info.name}Response"] = response_class(info.key)
    for cls in stored_classes():
        found[cls.__name__] = cls
    return found


MESSAGES = messages()


def known(name: str) -> list[tuple[Oracle, int]]:
    """Every oracle and every version of the message that it and we know."""
    return [
        (oracle, version)
        for oracle in ORACLES.values()
        for version in MESSAGES[name].VERSIONS
        if version in oracle.versions(name)
    ]


def values_of(struct: Struct, version: int) -> Values:
    return {
        bare_name(f.name): plain(f, getattr(struct, f.name), version) for f in struct.FIELDS if version in f.versions
    }


def plain(field: Field, value: Any, version: int) -> Any:
    if value is None:
        return None
    match field.kind:
        case "array":
            return [plain(field.of, element, version) for element in value]
        case "struct":
            return values_of(value, version)
        case "uuid" | "bytes" | "records":
            return bytes(value)
    return value


COMPARED = [name for name in MESSAGES if known(name)]


@pytest.mark.parametrize("name", COMPARED)
def test_bytes_agree_in_both_directions(name: str) -> None:
    rng = Random(name)
    for oracle, version in known(name):
        for _ in range(ROUNDS):
            values = oracle.random(rng, name, version)
            theirs = oracle.encode(name, version, values)
            message, end = MESSAGES[name].decode(theirs, version)
            assert end == len(theirs)
            assert values_of(message, version) == values
            ours = message.encode(version)
            assert ours == theirs
            assert oracle.decode(name, version, ours) == values


@pytest.mark.parametrize("name", COMPARED)
def test_defaults_agree(name: str) -> None:
    for oracle, version in known(name):
        ours = values_of(MESSAGES[name](), version)
        theirs = oracle.defaults(name, version)
        assert theirs == {field: ours[field] for field in theirs}


@pytest.mark.parametrize("name", COMPARED)
def test_flexible_versions_agree(name: str) -> None:
    for oracle, version in known(name):
        assert oracle.is_flexible(name, version) == (version in MESSAGES[name].FLEXIBLE_VERSIONS)


def test_api_keys_agree_and_what_is_not_declared_is_of_other_kinds_of_clusters() -> None:
    declared = {info.key: info.name for info in API_TABLE.values()}
    theirs = {key: "".join(word.capitalize() for word in name.split("_")) for key, name in api_key_map.items()}
    assert declared.items() <= theirs.items()
    quorum = {"BeginQuorumEpoch", "DescribeQuorum", "EndQuorumEpoch", "FetchSnapshot", "Vote"}
    voters = {"AddRaftVoter", "RemoveRaftVoter", "UpdateRaftVoter"}
    brokers = {"AssignReplicasToDirs", "BrokerHeartbeat", "BrokerRegistration", "ControllerRegistration", "Envelope"}
    tokens = {f"{verb}DelegationToken" for verb in ("Create", "Describe", "Expire", "Renew")}
    telemetry = {"GetTelemetrySubscriptions", "ListClientMetricsResources", "PushTelemetry"}
    shares = {name for name in theirs.values() if "Share" in name}
    left_out = quorum | voters | brokers | tokens | telemetry | shares | {"UnregisterBroker"}
    assert set(theirs.values()) - set(declared.values()) == left_out


def test_what_neither_knows_is_known() -> None:
    unknown = {}
    for name, cls in MESSAGES.items():
        versions = [v for v in cls.VERSIONS if not any(v in oracle.versions(name) for oracle in ORACLES.values())]
        if versions:
            unknown[name] = versions
    assert unknown == UNKNOWN_TO_BOTH
