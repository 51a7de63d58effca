"""Reassignments and elections against scripted brokers; and whom the calls about access ask."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.aio import Admin
from ottla.client.core.admin import replicas as admin_replicas
from ottla.client.core.admin.access_types import (
    AclBinding,
    AclOperation,
    AclResourceType,
    ScramMechanism,
    ScramUpsertion,
)
from ottla.client.core.admin.types import ElectionType, PartitionReassignment
from ottla.client.errors import ClientError
from ottla.wire.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.wire.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from ottla.wire.apis.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from ottla.wire.apis.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ottla.wire.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from ottla.wire.apis.metadata import MetadataRequest
from tests.waiting import run_async

from .scripted_broker import ScriptedBroker

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
Scenario = Callable[[Admin, ScriptedBroker, ScriptedBroker], Awaitable[None]]


def run(scenario: Scenario, prepare: Callable[[ScriptedBroker, ScriptedBroker], None], **settings: Any) -> None:
    """Two brokers; the client knows 1 first. 2 is the controller, which the client finds out when 1 refuses."""

    async def wrapped() -> None:
        async with ScriptedBroker(1) as first, ScriptedBroker(2) as second:
            controllers = iter([1])
            for broker, other in ((first, second), (second, first)):
                broker.on(
                    MetadataRequest, lambda _, b=broker, o=other: b.metadata(o, controller_id=next(controllers, 2))
                )
            prepare(first, second)
            async with Admin(bootstrap_servers=first.address, retry_backoff_ms=1, **settings) as admin:
                await scenario(admin, first, second)

    run_async(wrapped())


# Reassignments


def reassigned(**codes: int) -> AlterPartitionReassignmentsResponse:
    """Codes by partition, as p0=…"""
    partitions = [
        ReassignablePartitionResponse(partition_index=int(name[1:]), error_code=code) for name, code in codes.items()
    ]
    return AlterPartitionReassignmentsResponse(responses=[ReassignableTopicResponse(name="t", partitions=partitions)])


def test_the_controller_is_asked_for_reassignments_and_found_again() -> None:
    async def scenario(admin: Admin, first: ScriptedBroker, second: ScriptedBroker) -> None:
        unsendable = TopicPartition("t", 2**40)
        outcomes = await admin.alter_partition_reassignments({FIRST: [3, 1], unsendable: [1], SECOND: None})
        assert outcomes[FIRST] is None
        assert outcomes.errors[SECOND].code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        assert outcomes.errors[unsendable].code is ErrorCode.INVALID_REQUEST
        (request,) = second.asked(AlterPartitionReassignmentsRequest)
        (topic,) = request.topics
        assert [(entry.partition_index, entry.replicas) for entry in topic.partitions] == [(0, [3, 1]), (1, None)]
        assert request.timeout_ms == admin.settings.client.request_timeout_ms

    def prepare(first: ScriptedBroker, second: ScriptedBroker) -> None:
        moved = AlterPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER)
        first.on(AlterPartitionReassignmentsRequest, lambda _: moved)
        second.on(
            AlterPartitionReassignmentsRequest, lambda _: reassigned(p0=0, p1=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        )

    run(scenario, prepare)


def test_reassignments_are_listed() -> None:
    async def scenario(admin: Admin, first: ScriptedBroker, second: ScriptedBroker) -> None:
        expected = {FIRST: PartitionReassignment((1, 2), (2,), (1,)), SECOND: PartitionReassignment((3,), (), ())}
        assert await admin.list_partition_reassignments() == expected
        assert list(await admin.list_partition_reassignments([SECOND])) == [FIRST, SECOND]
        everything, chosen = second.asked(ListPartitionReassignmentsRequest)
        assert everything.topics is None
        assert [(topic.name, topic.partition_indexes) for topic in chosen.topics] == [("t", [1])]

    def prepare(first: ScriptedBroker, second: ScriptedBroker) -> None:
        entries = [
            OngoingPartitionReassignment(partition_index=1, replicas=[3]),
            OngoingPartitionReassignment(
                partition_index=0, replicas=[1, 2], adding_replicas=[2], removing_replicas=[1]
            ),
        ]
        listed = ListPartitionReassignmentsResponse(topics=[OngoingTopicReassignment(name="t", partitions=entries)])
        moved = ListPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER)
        first.on(ListPartitionReassignmentsRequest, lambda _: moved)
        second.on(ListPartitionReassignmentsRequest, lambda _: listed)

    run(scenario, prepare)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ([FIRST], "given by partition"),
        ({FIRST: []}, "t-0 needs a replica; None cancels"),
        ({FIRST: 1}, r"the replicas of t-0 must be a list, such as \[1\]"),
        ({FIRST: "12"}, "the replicas of t-0 must be a list"),
    ],
)
def test_slips_in_reassignments(given: Any, shown: str) -> None:
    with pytest.raises(ValueError, match=shown):
        admin_replicas.reassignments_to_make(given)


# Elections


def elected(**codes: int) -> ElectLeadersResponse:
    results = [PartitionResult(partition_id=int(name[1:]), error_code=code) for name, code in codes.items()]
    return ElectLeadersResponse(replica_election_results=[ReplicaElectionResult(topic="t", partition_result=results)])


@pytest.mark.parametrize("version", ElectLeadersRequest.VERSIONS)
def test_elections_in_every_version(version: int) -> None:
    preferred = admin_replicas.elect_leaders_call(ElectionType.PREFERRED, timeout_ms=5)
    unclean = admin_replicas.elect_all_leaders_call(ElectionType.UNCLEAN, timeout_ms=5)
    request = ElectLeadersRequest.decode(preferred.build([FIRST, SECOND], version).encode(version), version)[0]
    assert request.topic_partitions is not None
    assert [(entry.topic, entry.partitions) for entry in request.topic_partitions] == [("t", [0, 1])]
    assert (request.election_type, request.timeout_ms) == (0, 5)
    if version:
        request = ElectLeadersRequest.decode(unclean.build(["all"], version).encode(version), version)[0]
        assert (request.election_type, request.topic_partitions) == (1, None)
    else:
        with pytest.raises(ClientError, match="too old") as caught:
            unclean.build(["all"], version)
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    response = elected(p0=0, p1=ErrorCode.ELECTION_NOT_NEEDED)
    heard = ElectLeadersResponse.decode(response.encode(version), version)[0]
    answers = preferred.answers([FIRST, SECOND], heard)
    assert answers[FIRST] is None
    assert isinstance(answers[SECOND], ClientError)
    assert unclean.answers([admin_replicas.ALL_PARTITIONS], heard).keys() == {admin_replicas.ALL_PARTITIONS}


def test_an_election_that_is_not_needed_is_not_asked_for_again() -> None:
    codes = [
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]

    async def scenario(admin: Admin, first: ScriptedBroker, second: ScriptedBroker) -> None:
        outcomes = await admin.elect_leaders([TopicPartition("t", index) for index in range(5)])
        assert outcomes.results == {TopicPartition("t", 4): None}
        assert [error.code for error in outcomes.errors.values()] == codes
        assert len(second.asked(ElectLeadersRequest)) == 1
        everywhere = await admin.elect_leaders(kind=ElectionType.UNCLEAN)
        assert everywhere.results.keys() == {TopicPartition("t", 4)}
        assert second.asked(ElectLeadersRequest)[1].election_type == 1
        assert len(await admin.elect_leaders([])) == 0
        with pytest.raises(ValueError, match="unclean"):
            await admin.elect_leaders(kind="unclean")  # type: ignore[arg-type]
        assert len(second.asked(ElectLeadersRequest)) == 2

    def prepare(first: ScriptedBroker, second: ScriptedBroker) -> None:
        first.on(ElectLeadersRequest, lambda _: ElectLeadersResponse(error_code=ErrorCode.NOT_CONTROLLER))
        answer = elected(**{f"p{index}": int(code) for index, code in enumerate([*codes, 0])})
        second.on(ElectLeadersRequest, lambda _: answer)

    run(scenario, prepare)


def test_who_may_not_elect_is_told() -> None:
    async def scenario(admin: Admin, first: ScriptedBroker, second: ScriptedBroker) -> None:
        assert (await admin.elect_leaders([FIRST])).errors[FIRST].code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        with pytest.raises(ClientError, match="CLUSTER_AUTHORIZATION_FAILED"):
            await admin.elect_leaders()

    def prepare(first: ScriptedBroker, second: ScriptedBroker) -> None:
        refused = ElectLeadersResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        for broker in (first, second):
            broker.on(ElectLeadersRequest, lambda _: refused)

    run(scenario, prepare)


# Access


def test_rules_that_are_asked_about_again_are_matched_by_their_new_order() -> None:
    def rule(name: str) -> AclBinding:
        return AclBinding(AclResourceType.TOPIC, name, "User:alice", AclOperation.READ)

    async def scenario(admin: Admin, first: ScriptedBroker, second: ScriptedBroker) -> None:
        outcomes = await admin.create_acls([rule(name) for name in "abcd"])
        assert outcomes.results.keys() == {rule("a"), rule("d")}
        assert {key.name: error.code for key, error in outcomes.errors.items()} == {
            "b": ErrorCode.POLICY_VIOLATION,
            "c": ErrorCode.INVALID_REQUEST,
        }
        asked = first.asked(CreateAclsRequest) + second.asked(CreateAclsRequest)
        names = sorted("".join(entry.resource_name for entry in request.creations) for request in asked)
        assert names == ["abcd", "bd"]

    def prepare(first: ScriptedBroker, second: ScriptedBroker) -> None:
        replies = iter(
            [
                [0, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.INVALID_REQUEST, ErrorCode.NOT_CONTROLLER],
                [ErrorCode.POLICY_VIOLATION, 0],
            ]
        )
        for broker in (first, second):
            broker.on(
                CreateAclsRequest,
                lambda _: CreateAclsResponse(results=[AclCreationResult(error_code=code) for code in next(replies)]),
            )

    run(scenario, prepare)


def test_each_password_has_a_salt_of_its_own_and_keeps_it_when_asked_again() -> None:
    async def scenario(admin: Admin, first: ScriptedBroker, second: ScriptedBroker) -> None:
        changes = [ScramUpsertion(user, ScramMechanism.SCRAM_SHA_256, "secret", 4096) for user in "ab"]
        (await admin.alter_user_scram_credentials(changes)).check()
        (refused,), (taken,) = (broker.asked(AlterUserScramCredentialsRequest) for broker in (first, second))
        salts = [entry.salt for entry in taken.upsertions]
        assert salts == [entry.salt for entry in refused.upsertions]
        assert len(set(salts)) == 2
        assert {len(salt) for salt in salts} == {20}

    def answered(code: int) -> AlterUserScramCredentialsResponse:
        results = [AlterUserScramCredentialsResult(user=user, error_code=code) for user in "ab"]
        return AlterUserScramCredentialsResponse(results=results)

    def prepare(first: ScriptedBroker, second: ScriptedBroker) -> None:
        first.on(AlterUserScramCredentialsRequest, lambda _: answered(ErrorCode.NOT_CONTROLLER))
        second.on(AlterUserScramCredentialsRequest, lambda _: answered(0))

    run(scenario, prepare)
