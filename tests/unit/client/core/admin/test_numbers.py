"""Numbers that go over the wire, as Kafka has laid them down."""

from __future__ import annotations

from enum import IntEnum

import pytest

from ottla.client.core.admin.access_types import ScramMechanism
from ottla.client.core.admin.types import ConfigOperation, ConfigSource, ElectionType, OffsetSpec, ResourceType


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        (ResourceType, {"TOPIC": 2, "BROKER": 4, "BROKER_LOGGER": 8, "CLIENT_METRICS": 16, "GROUP": 32}),
        (
            ConfigSource,
            {
                "UNKNOWN": 0,
                "TOPIC": 1,
                "BROKER": 2,
                "DEFAULT_BROKER": 3,
                "STATIC_BROKER": 4,
                "DEFAULT": 5,
                "BROKER_LOGGER": 6,
                "CLIENT_METRICS": 7,
                "GROUP": 8,
            },
        ),
        (ConfigOperation, {"SET": 0, "DELETE": 1, "APPEND": 2, "SUBTRACT": 3}),
        (ElectionType, {"PREFERRED": 0, "UNCLEAN": 1}),
        (
            OffsetSpec,
            {"LATEST": -1, "EARLIEST": -2, "MAX_TIMESTAMP": -3, "EARLIEST_LOCAL": -4, "LATEST_TIERED": -5},
        ),
        (ScramMechanism, {"UNKNOWN": 0, "SCRAM_SHA_256": 1, "SCRAM_SHA_512": 2}),
    ],
)
def test_numbers(kind: type[IntEnum], numbers: dict[str, int]) -> None:
    assert {each.name: each.value for each in kind} == numbers
