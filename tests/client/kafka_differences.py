"""Where Apache Kafka is asked less than our own broker, and why. Every other test of the client runs against both."""

from __future__ import annotations

KAFKA = "kafka"

_TESTS = {
    ("test_consumer_groups", "test_a_kip_848_group_takes_foreign_members"): (
        "librdkafka joins KIP-848 groups only of Kafka 4.0 and later, whose heartbeats have another version"
    ),
}


def reason_for(module: str, test: str) -> str | None:
    """Why a test is not run against Kafka; None if it is."""
    return _TESTS.get((module, test))


def has_no_foreign_members(broker_kind: str, group_protocol: str) -> bool:
    """For the same reason, a test that needs a member of such a group takes one of our own."""
    return broker_kind == KAFKA and group_protocol == "consumer"
