"""Our declarations against a codec that others wrote from Kafka's own message definitions, where one is at hand.

It is looked for beside the repository; nothing of the project needs it. Messages come from its definitions, not from
our declarations, so that a field we forgot or misplaced cannot hide.
"""

from __future__ import annotations

import importlib.util
import re
import uuid
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla.wire.apis import API_TABLE, request_class, response_class
from ottla.wire.message import Message

CODEC_PATH = Path(__file__).parents[3] / "shared" / "facts" / "verify" / "codec.py"
ROUNDS = 3

pytestmark = pytest.mark.skipif(not CODEC_PATH.exists(), reason="no independent codec lies beside the repository")

STORED = {
    "consumer_offsets": (
        "OffsetCommitKey",
        "OffsetCommitValue",
        "GroupMetadataKey",
        "GroupMetadataValue",
        "ConsumerGroupMetadataKey",
        "ConsumerGroupMetadataValue",
        "ConsumerGroupPartitionMetadataKey",
        "ConsumerGroupPartitionMetadataValue",
        "ConsumerGroupMemberMetadataKey",
        "ConsumerGroupMemberMetadataValue",
        "ConsumerGroupTargetAssignmentMetadataKey",
        "ConsumerGroupTargetAssignmentMetadataValue",
        "ConsumerGroupTargetAssignmentMemberKey",
        "ConsumerGroupTargetAssignmentMemberValue",
        "ConsumerGroupCurrentMemberAssignmentKey",
        "ConsumerGroupCurrentMemberAssignmentValue",
    ),
    "transaction_state": ("TransactionLogKey", "TransactionLogValue"),
    "consumer_protocol": ("ConsumerProtocolSubscription", "ConsumerProtocolAssignment"),
    "producer_snapshot": ("ProducerSnapshot",),
}

NEWER_THAN_THE_DEFINITIONS = {
    "ConsumerGroupDescribe": 1,
    "DescribeCluster": 2,
    "DescribeGroups": 6,
    "Metadata": 13,
    "Produce": 12,
    "TxnOffsetCommit": 5,
}
"""Versions of Kafka 4.0 that we declare and the definitions do not have yet."""


@pytest.fixture(scope="module")
def codec() -> Any:
    spec = importlib.util.spec_from_file_location("independent_codec", CODEC_PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def messages() -> dict[str, type[Message]]:
    found: dict[str, type[Message]] = {}
    for info in API_TABLE.values():
        found[f"{info.name}Request"] = request_class(info.key)
        found[f"{info.name}Response"] = response_class(info.key)
    for module, names in STORED.items():
        for name in names:
            found[name] = getattr(import_module(f"ottla.wire.stored.{module}"), name)
    return found


MESSAGES = messages()


def attribute(kafka_name: str) -> str:
    words = kafka_name.replace("KRaft", "Kraft")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", words).lower()


class Definitions:
    """Random values by the independent codec's definitions, and what our objects should hold for them."""

    def __init__(self, codec: Any, name: str) -> None:
        self.codec = codec
        self.codec_of = codec.codec(name)
        self.json = codec.schema(name)

    def versions(self) -> range:
        first, _, last = self.json["validVersions"].partition("-")
        return range(int(first), int(last or first) + 1)

    def fields(self, version: int, fields: list[Any]) -> list[Any]:
        return [f for f in fields if self.codec.in_range(self.codec.versions_of(f), version)]

    def random_struct(self, rng: Random, fields: list[Any], version: int) -> dict[str, Any]:
        return {f["name"]: self.random_value(rng, f, f["type"], version) for f in self.fields(version, fields)}

    def random_value(self, rng: Random, field: Any, kind: str, version: int, *, element: bool = False) -> Any:
        nullable = self.codec.in_range(field.get("nullableVersions"), version) and not element
        if nullable and rng.random() < 0.25:
            return None
        if kind.startswith("[]"):
            return [self.random_value(rng, field, kind[2:], version, element=True) for _ in range(rng.randrange(4))]
        match kind:
            case "bool":
                return rng.random() < 0.5
            case "int8" | "int16" | "int32" | "int64":
                half = 1 << (int(kind[3:]) - 1)
                return rng.choice((0, -1, half - 1, -half, rng.randrange(-half, half)))
            case "uint16" | "uint32":
                return rng.randrange(1 << int(kind[4:]))
            case "float64":
                return rng.uniform(-1e9, 1e9)
            case "uuid":
                return uuid.UUID(bytes=rng.randbytes(16))
            case "string":
                return rng.choice(("", "a", "größe", "t" * 130))
            case "bytes" | "records":
                return rng.randbytes(rng.choice((0, 1, 130)))
        inner = self.inner_fields(field)
        value = self.random_struct(rng, inner, version)
        # The independent codec writes a tagged struct even when all in it is default; Kafka does not, and nor do we.
        while not nullable and value == {f["name"]: self.codec.default_of(f, version, {}) for f in inner}:
            value = self.random_struct(rng, inner, version)
        return value

    def inner_fields(self, field: Any) -> list[Any]:
        fields: list[Any] = self.codec_of._fields(field)
        return fields

    def assert_same(self, ours: Any, theirs: Any, fields: list[Any], version: int, path: str) -> None:
        present = self.fields(version, fields)
        declared = {f.name for f in ours.FIELDS if version in f.versions}
        assert declared == {attribute(f["name"]) for f in present}, path
        for field in present:
            inner = f"{path}.{field['name']}"
            mine, other = getattr(ours, attribute(field["name"])), theirs[field["name"]]
            kind = field["type"]
            if kind.startswith("[]") and kind[2].isupper() and other is not None:
                assert len(mine) == len(other), inner
                for left, right in zip(mine, other, strict=True):
                    self.assert_same(left, right, self.inner_fields(field), version, inner)
            elif kind[0].isupper() and other is not None:
                self.assert_same(mine, other, self.inner_fields(field), version, inner)
            else:
                assert mine == plain(other), inner


def plain(value: Any) -> Any:
    if isinstance(value, uuid.UUID):
        return value.bytes
    return [plain(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", MESSAGES)
def test_bytes_agree_in_both_directions(codec: Any, name: str) -> None:
    cls = MESSAGES[name]
    definitions = Definitions(codec, name)
    rng = Random(name)
    for version in definitions.versions():
        for _ in range(ROUNDS):
            theirs = definitions.random_struct(rng, definitions.json["fields"], version)
            data = definitions.codec_of.encode(theirs, version)
            ours, end = cls.decode(data, version)
            assert end == len(data)
            definitions.assert_same(ours, theirs, definitions.json["fields"], version, name)
            assert ours.encode(version) == data
            back, end = definitions.codec_of.decode(ours.encode(version), version)
            assert end == len(data)
            assert definitions.codec_of.encode(back, version) == data


@pytest.mark.parametrize("name", MESSAGES)
def test_defaults_agree(codec: Any, name: str) -> None:
    definitions = Definitions(codec, name)
    for version in definitions.versions():
        assert MESSAGES[name]().encode(version) == definitions.codec_of.encode({}, version)


@pytest.mark.parametrize("name", MESSAGES)
def test_version_ranges_agree(codec: Any, name: str) -> None:
    definitions = Definitions(codec, name)
    cls = MESSAGES[name]
    newest = NEWER_THAN_THE_DEFINITIONS.get(name.removesuffix("Request").removesuffix("Response"))
    expected = definitions.versions()
    assert range(expected.start, newest + 1 if newest else expected.stop) == cls.VERSIONS
    assert [v in cls.FLEXIBLE_VERSIONS for v in expected] == [definitions.codec_of.flexible(v) for v in expected]


def test_every_api_of_the_definitions_is_declared_unless_it_is_for_quorum_controllers(codec: Any) -> None:
    left_out = {
        "BeginQuorumEpoch",
        "BrokerHeartbeat",
        "BrokerRegistration",
        "DescribeQuorum",
        "EndQuorumEpoch",
        "Envelope",
        "UnregisterBroker",
        "Vote",
    }
    assert {info.name for info in API_TABLE.values()} == set(codec.API.values()) - left_out
    assert all(codec.API[info.key] == info.name for info in API_TABLE.values())
