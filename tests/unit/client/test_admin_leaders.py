"""Why a partition cannot be asked for, and which members of a group are meant."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.aio.admin.caller import AdminCaller
from ottla.client.aio.admin.group_calls import GroupCalls
from ottla.client.core.admin.options import AdminSettings
from ottla.client.core.admin.outcomes import Outcomes, admin_error
from ottla.wire.apis.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from tests.waiting import run_async

REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("partition", "code"),
    [
        (TopicPartition("refused", 0), REFUSED),
        (TopicPartition("refused", 9), REFUSED),
        (TopicPartition("t", 0), ErrorCode.LEADER_NOT_AVAILABLE),
        (TopicPartition("t", 1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicPartition("none", 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_why_a_partition_has_no_leader(partition: TopicPartition, code: ErrorCode) -> None:
    caller = AdminCaller(AdminSettings.parse({"bootstrap.servers": "nowhere:1"}))
    leaderless = MetadataResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE, partition_index=0, leader_id=-1, replica_nodes=[1], isr_nodes=[1]
    )
    topics = [
        MetadataResponseTopic(name="t", partitions=[leaderless]),
        MetadataResponseTopic(name="refused", error_code=REFUSED),
    ]
    caller.metadata.update(MetadataResponse(topics=topics), 0)
    error = caller._why_no_leader(partition)
    assert error.code == code
    assert str(partition) in str(error)


class Coordinator:
    """Of a group with a static member `i` and two others."""

    def __init__(self, *strangers: str) -> None:
        self.strangers = strangers
        self.asked: list[list[str]] = []
        self.described = 0

    async def coordinator(self, kind: int, group_id: str, call: Any, keys: list[str], timeout_ms: object) -> Any:
        self.asked.append(keys)
        return Outcomes(
            {key: admin_error(ErrorCode.UNKNOWN_MEMBER_ID) if key in self.strangers else None for key in keys}
        )

    async def describe_groups(self, groups: list[str], *, timeout_ms: object) -> Any:
        self.described += 1
        members = [
            SimpleNamespace(member_id=member_id, instance_id=instance_id, client_id="c", host="h")
            for member_id, instance_id in (("m2", None), ("m-of-i", "i"), ("m1", None))
        ]
        return Outcomes({group: SimpleNamespace(group_id=group, members=members) for group in groups})


@pytest.mark.parametrize(
    ("named", "instances", "asked", "described"),
    [
        (None, (), ["m1", "m2", "i"], 1),
        (None, ("j", "i"), ["i", "j"], 0),
        (["b", "a"], (), ["a", "b"], 0),
        (["a"], ("j",), ["a", "j"], 0),
        ([], (), [], 0),
    ],
)
def test_members_that_are_removed(
    named: list[str] | None, instances: tuple[str, ...], asked: list[str], described: int
) -> None:
    coordinator: Any = Coordinator()
    calls = GroupCalls.__new__(GroupCalls)
    calls._caller = coordinator
    calls.describe_groups = coordinator.describe_groups  # type: ignore[method-assign]
    outcomes = run_async(calls.remove_members("g", named, instance_ids=instances))
    assert coordinator.asked == [asked]
    assert coordinator.described == described
    assert list(outcomes.results) == asked and outcomes.errors == {}
