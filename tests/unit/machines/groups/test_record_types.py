"""Which record of the log of groups each kind of key announces."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.machines.groups.record_types import parse
from ottla.wire.stored import consumer_offsets as stored


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (0, "OffsetCommit"),
        (1, "OffsetCommit"),
        (2, "GroupMetadata"),
        (3, "ConsumerGroupMetadata"),
        (4, "ConsumerGroupPartitionMetadata"),
        (5, "ConsumerGroupMemberMetadata"),
        (6, "ConsumerGroupTargetAssignmentMetadata"),
        (7, "ConsumerGroupTargetAssignmentMember"),
        (8, "ConsumerGroupCurrentMemberAssignment"),
    ],
)
def test_a_key_announces_its_value(kind: int, name: str) -> None:
    key: Any = getattr(stored, f"{name}Key")()
    value: Any = getattr(stored, f"{name}Value")()
    key_bytes = key.encode_versioned(kind)
    assert key_bytes[:2] == bytes([0, kind])
    assert parse(key_bytes, value.encode_versioned(0)) == (key, value)
    assert parse(key_bytes, None) == (key, None)


@pytest.mark.parametrize("kind", [9, 100])
def test_a_key_of_a_later_kind_is_left_alone(kind: int) -> None:
    assert parse(bytes([0, kind]) + b"anything", b"\0\0anything") is None
