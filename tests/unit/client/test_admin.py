"""The admin client against scripted brokers: whom it asks, what it asks again, what it does with old brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition, Uuid
from ottla.client.aio import Admin
from ottla.client.core.admin.groups import (
    describe_classic_groups_call,
    list_group_offsets_call,
    list_groups_call,
    remove_members_call,
)
from ottla.client.core.admin.outcomes import GRACE_TRIES, Outcomes, admin_error, tries_again
from ottla.client.core.admin.partitions import hanging, list_offsets_call, list_transactions_call
from ottla.client.core.admin.topics import create_topics_call, delete_topics_call, describe_topics_call
from ottla.client.core.admin.types import (
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ProducerDescription,
    TransactionDescription,
)
from ottla.client.core.group.protocol import encode_assignment, encode_subscription
from ottla.client.errors import ClientError
from ottla.wire.apis.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.wire.apis.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from ottla.wire.apis.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.apis.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.wire.apis.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.wire.apis.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.apis.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.wire.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.apis.metadata import MetadataRequest, MetadataResponsePartition, MetadataResponseTopic
from tests.waiting import run_async

from .scripted_broker import ScriptedBroker

Scenario = Callable[[Admin, ScriptedBroker, ScriptedBroker], Awaitable[None]]


def run(scenario: Scenario, prepare: Callable[[ScriptedBroker, ScriptedBroker], None], **settings: Any) -> None:
    """Two brokers, 1 and 2, that know each other; 1 is the controller unless the test says otherwise."""

    async def wrapped() -> None:
        async with ScriptedBroker(1) as first, ScriptedBroker(2) as second:
            for broker, other in ((first, second), (second, first)):
                broker.on(MetadataRequest, lambda _, b=broker, o=other: b.metadata(o, controller_id=1))
            prepare(first, second)
            async with Admin(bootstrap_servers=first.address, retry_backoff_ms=1, **settings) as admin:
                await scenario(admin, first, second)

    run_async(wrapped())


def created(**codes: int) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name=name, error_code=code) for name, code in codes.items()]
    )


def test_a_controller_that_moved_is_found_again_for_what_failed_only() -> None:
    async def scenario(admin: Admin, first: ScriptedBroker, second: ScriptedBroker) -> None:
        outcomes = await admin.create_topics(["a", "b", "c"])
        assert outcomes.results.keys() == {"a", "b"}
        assert outcomes.errors["c"].code is ErrorCode.INVALID_PARTITIONS
        assert [topic.name for topic in second.asked(CreateTopicsRequest)[0].topics] == ["b"]

    def prepare(first: ScriptedBroker, second: ScriptedBroker) -> None:
        controllers = iter([1])
        for broker, other in ((first, second), (second, first)):
            broker.on(MetadataRequest, lambda _, b=broker, o=other: b.metadata(o, controller_id=next(controllers, 2)))
        moved, refused = int(ErrorCode.NOT_CONTROLLER), int(ErrorCode.INVALID_PARTITIONS)
        first.on(CreateTopicsRequest, lambda _: created(a=0, b=moved, c=refused))
        second.on(CreateTopicsRequest, lambda _: created(b=0))

    run(scenario, prepare)


def test_retries_end_when_the_time_is_up_and_tell_the_last_error() -> None:
    async def scenario(admin: Admin, first: ScriptedBroker, second: ScriptedBroker) -> None:
        outcomes = await admin.create_topics(["a"])
        assert outcomes.errors["a"].code is ErrorCode.REQUEST_TIMED_OUT
        assert "NOT_CONTROLLER" in outcomes.errors["a"].message
        assert len(first.asked(CreateTopicsRequest)) > 1

    def prepare(first: ScriptedBroker, second: ScriptedBroker) -> None:
        first.on(CreateTopicsRequest, lambda _: created(a=int(ErrorCode.NOT_CONTROLLER)))

    run(scenario, prepare, default_api_timeout_ms=150)


def test_what_an_answer_leaves_out_is_an_error() -> None:
    async def scenario(admin: Admin, first: ScriptedBroker, second: ScriptedBroker) -> None:
        outcomes = await admin.create_topics(["a", "b"])
        assert "does not mention" in outcomes.errors["b"].message

    run(scenario, lambda first, second: first.on(CreateTopicsRequest, lambda _: created(a=0)))


def test_an_api_the_broker_does_not_have_is_an_error_at_once() -> None:
    async def scenario(admin: Admin, first: ScriptedBroker, second: ScriptedBroker) -> None:
        outcomes = await admin.create_topics(["a"])
        assert outcomes.errors["a"].code is ErrorCode.UNSUPPORTED_VERSION

    run(scenario, lambda first, second: None)


def test_a_broker_that_joined_later_is_looked_for_before_it_is_said_to_be_missing() -> None:
    async def scenario(admin: Admin, first: ScriptedBroker, second: ScriptedBroker) -> None:
        await admin.describe_cluster()
        joined, nobody = ConfigResource.broker(2), ConfigResource.broker(9)
        found = await admin.describe_configs([joined, nobody])
        assert found.results.keys() == {joined}
        assert found.errors[nobody].code is ErrorCode.BROKER_ID_NOT_REGISTERED
        assert len(second.asked(DescribeConfigsRequest)) == 1

    def prepare(first: ScriptedBroker, second: ScriptedBroker) -> None:
        alone = iter([True, True])
        first.on(MetadataRequest, lambda _: first.metadata(*([] if next(alone, False) else [second])))
        result = DescribeConfigsResult(resource_type=4, resource_name="2")
        for broker in (first, second):
            broker.on(DescribeConfigsRequest, lambda _: DescribeConfigsResponse(results=[result]))

    run(scenario, prepare)


def test_each_broker_is_asked_about_itself() -> None:
    async def scenario(admin: Admin, first: ScriptedBroker, second: ScriptedBroker) -> None:
        resources = [ConfigResource.broker(1), ConfigResource.broker(2)]
        assert (await admin.describe_configs(resources)).check().keys() == set(resources)
        for broker in (first, second):
            (request,) = broker.asked(DescribeConfigsRequest)
            assert [resource.resource_name for resource in request.resources] == [str(broker.node_id)]

    def answer(request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        return DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
                for resource in request.resources
            ]
        )

    def prepare(first: ScriptedBroker, second: ScriptedBroker) -> None:
        first.on(DescribeConfigsRequest, answer)
        second.on(DescribeConfigsRequest, answer)

    run(scenario, prepare)


def test_groups_of_all_brokers_are_listed() -> None:
    async def scenario(admin: Admin, first: ScriptedBroker, second: ScriptedBroker) -> None:
        assert [group.group_id for group in await admin.list_groups()] == ["a", "b"]

    def prepare(first: ScriptedBroker, second: ScriptedBroker) -> None:
        loading = iter([int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)])
        first.on(ListGroupsRequest, lambda _: ListGroupsResponse(groups=[ListedGroup(group_id="b")]))
        second.on(
            ListGroupsRequest,
            lambda _: ListGroupsResponse(error_code=next(loading, 0), groups=[ListedGroup(group_id="a")]),
        )

    run(scenario, prepare)


def coordinator(*nodes: int) -> Callable[[FindCoordinatorRequest], FindCoordinatorResponse]:
    answers = iter(nodes)

    def answer(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        (key,) = request.coordinator_keys
        return FindCoordinatorResponse(coordinators=[Coordinator(key=key, node_id=next(answers, nodes[-1]))])

    return answer


def test_a_coordinator_that_moved_is_found_again() -> None:
    async def scenario(admin: Admin, first: ScriptedBroker, second: ScriptedBroker) -> None:
        assert (await admin.delete_groups(["g"]))["g"] is None
        assert len(first.asked(DeleteGroupsRequest)) == len(second.asked(DeleteGroupsRequest)) == 1

    def deleted(code: int) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(results=[DeletableGroupResult(group_id="g", error_code=code)])

    def prepare(first: ScriptedBroker, second: ScriptedBroker) -> None:
        find = coordinator(1, 2)
        for broker in (first, second):
            broker.on(FindCoordinatorRequest, find)
        first.on(DeleteGroupsRequest, lambda _: deleted(ErrorCode.NOT_COORDINATOR))
        second.on(DeleteGroupsRequest, lambda _: deleted(0))

    run(scenario, prepare)


@pytest.mark.parametrize("knows_consumer_groups", [True, False])
def test_a_group_may_be_of_either_protocol(knows_consumer_groups: bool) -> None:
    async def scenario(admin: Admin, first: ScriptedBroker, second: ScriptedBroker) -> None:
        found = (await admin.describe_groups(["g"]))["g"]
        assert (found.type, found.state) == ("classic", "Stable")

    refused = DescribedConsumerGroup(group_id="g", error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    described = DescribedGroup(group_id="g", group_state="Stable")

    def prepare(first: ScriptedBroker, second: ScriptedBroker) -> None:
        first.on(FindCoordinatorRequest, coordinator(1))
        if knows_consumer_groups:
            first.on(ConsumerGroupDescribeRequest, lambda _: ConsumerGroupDescribeResponse(groups=[refused]))
        first.on(DescribeGroupsRequest, lambda _: DescribeGroupsResponse(groups=[described]))

    run(scenario, prepare)


def test_a_leader_that_moved_is_found_again() -> None:
    partition = TopicPartition("t", 0)

    async def scenario(admin: Admin, first: ScriptedBroker, second: ScriptedBroker) -> None:
        assert (await admin.list_offsets({partition: OffsetSpec.LATEST}))[partition].offset == 7
        assert len(first.asked(ListOffsetsRequest)) == len(second.asked(ListOffsetsRequest)) == 1

    def answered(code: int) -> ListOffsetsResponse:
        entry = ListOffsetsPartitionResponse(partition_index=0, error_code=code, offset=7)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[entry])])

    def prepare(first: ScriptedBroker, second: ScriptedBroker) -> None:
        leaders = iter([1])

        def metadata(broker: ScriptedBroker, other: ScriptedBroker, request: MetadataRequest) -> Any:
            topics = []
            if request.topics:
                entry = MetadataResponsePartition(partition_index=0, leader_id=next(leaders, 2))
                topics = [MetadataResponseTopic(name="t", partitions=[entry])]
            return broker.metadata(other, topics=topics)

        first.on(MetadataRequest, lambda request: metadata(first, second, request))
        second.on(MetadataRequest, lambda request: metadata(second, first, request))
        first.on(ListOffsetsRequest, lambda _: answered(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        second.on(ListOffsetsRequest, lambda _: answered(0))

    run(scenario, prepare)


def test_a_partition_that_stays_unknown_is_given_up_after_some_tries() -> None:
    partition = TopicPartition("t", 0)

    async def scenario(admin: Admin, first: ScriptedBroker, second: ScriptedBroker) -> None:
        outcomes = await admin.list_offsets({partition: OffsetSpec.LATEST})
        assert outcomes.errors[partition].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert len(first.asked(ListOffsetsRequest)) == GRACE_TRIES + 1

    def prepare(first: ScriptedBroker, second: ScriptedBroker) -> None:
        led = MetadataResponsePartition(partition_index=0, leader_id=1)
        topic = MetadataResponseTopic(name="t", partitions=[led])
        first.on(MetadataRequest, lambda request: first.metadata(second, topics=[topic] if request.topics else []))
        second.on(MetadataRequest, lambda request: second.metadata(first, topics=[topic] if request.topics else []))
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        entry = ListOffsetsPartitionResponse(partition_index=0, error_code=code)
        answer = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[entry])])
        first.on(ListOffsetsRequest, lambda _: answer)

    run(scenario, prepare)


# Without a broker


def test_outcomes_are_a_mapping_that_raises() -> None:
    outcomes: Outcomes[str, int] = Outcomes({"a": 1, "b": admin_error(ErrorCode.INVALID_REQUEST, where="b")})
    assert outcomes["a"] == 1
    assert list(outcomes) == ["a", "b"]
    assert len(outcomes) == 2
    assert "b" in outcomes
    with pytest.raises(ClientError, match="b: "):
        outcomes["b"]
    with pytest.raises(ClientError, match="b: "):
        outcomes.check()
    with pytest.raises(KeyError):
        outcomes["c"]
    assert Outcomes({"a": 1}).check() == {"a": 1}


def test_an_error_names_its_thing_once() -> None:
    assert admin_error(ErrorCode.INVALID_CONFIG, "no", where="topic t").message == "topic t: no"
    assert admin_error(ErrorCode.INVALID_CONFIG, "'t' is bad", where="topic t").message == "'t' is bad"
    assert admin_error(ErrorCode.INVALID_CONFIG, "no").message == "no"
    unknown = admin_error(31_999, where="topic t")
    assert unknown.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "31999" in unknown.message


def test_what_is_tried_again() -> None:
    passing, final = admin_error(ErrorCode.NOT_COORDINATOR), admin_error(ErrorCode.INVALID_CONFIG)
    unknown = admin_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert tries_again(passing, 100, grace=False)
    assert not tries_again(final, 1, grace=True)
    assert not tries_again(unknown, 1, grace=False)
    assert not tries_again(admin_error(ErrorCode.REPLICA_NOT_AVAILABLE), 1, grace=False)
    assert tries_again(unknown, GRACE_TRIES, grace=True)
    assert not tries_again(unknown, GRACE_TRIES + 1, grace=True)


@pytest.mark.parametrize(
    "build",
    [
        lambda: create_topics_call([NewTopic("t")], validate_only=False, timeout_ms=1).build(["t"], 3),
        lambda: delete_topics_call([Uuid(bytes(16))], timeout_ms=1).build([Uuid(bytes(16))], 5),
        lambda: describe_topics_call([Uuid(bytes(16))]).build([Uuid(bytes(16))], 11),
        lambda: list_groups_call(1, ["Stable"], []).build([1], 3),
        lambda: list_groups_call(1, [], ["classic"]).build([1], 4),
        lambda: remove_members_call("g", {"instance"}, None).build(["instance"], 2),
        lambda: list_group_offsets_call("g", None, require_stable=False).build(["g"], 1),
        lambda: list_offsets_call({TopicPartition("t", 0): OffsetSpec.MAX_TIMESTAMP}, read_committed=False).build(
            [TopicPartition("t", 0)], 6
        ),
        lambda: list_transactions_call(1, [], [], 5).build([1], 0),
    ],
)
def test_what_an_old_broker_cannot_do_is_said_before_it_is_asked(build: Callable[[], object]) -> None:
    with pytest.raises(ClientError) as caught:
        build()
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_old_versions_are_spoken() -> None:
    delete = delete_topics_call(["a"], timeout_ms=1)
    assert delete.build(["a"], 5).encode(5)
    offsets = list_group_offsets_call("g", None, require_stable=True)
    assert [offsets.build(["g"], version).encode(version) for version in range(2, 10)]
    leave = remove_members_call("g", set(), None)
    assert [leave.build(["m"], version).encode(version) for version in range(3, 6)]


def test_members_with_bytes_of_their_own_are_shown_without_partitions() -> None:
    def member(assignment: bytes, metadata: bytes = b"") -> DescribedGroupMember:
        return DescribedGroupMember(member_id="m", member_assignment=assignment, member_metadata=metadata)

    good, bad = encode_assignment([TopicPartition("t", 1)]), b"\x00"
    reads = encode_subscription(["t", "u"], [], -1)
    groups = [
        DescribedGroup(
            group_id="consumers", protocol_type="consumer", members=[member(good, reads), member(good), member(bad)]
        ),
        DescribedGroup(group_id="workers", protocol_type="connect", members=[member(good)]),
        DescribedGroup(group_id="gone", group_state="Dead"),
    ]
    names = [group.group_id for group in groups]
    answers = describe_classic_groups_call().answers(names, DescribeGroupsResponse(groups=groups))
    consumers, workers, gone = (answers[name] for name in names)
    assert not isinstance(consumers, ClientError)
    assert not isinstance(workers, ClientError)
    held = {TopicPartition("t", 1)}
    assert [entry.assignment for entry in consumers.members] == [held, held, frozenset()]
    assert [entry.subscribed_topics for entry in consumers.members] == [{"t", "u"}, frozenset(), frozenset()]
    assert workers.members[0].assignment == frozenset()
    assert isinstance(gone, ClientError)
    assert gone.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_transaction_hangs_if_no_coordinator_knows_it() -> None:
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)

    def producer(producer_id: int, last_ms: int = 10, start: int | None = 5) -> ProducerDescription:
        return ProducerDescription(producer_id, 0, 0, last_ms, None, start)

    known = TransactionDescription("x", "Ongoing", 1, 0, 1000, 0, frozenset({first}))
    open_in = {
        first: [producer(1), producer(2), producer(3, last_ms=11), producer(4, start=None)],
        second: [producer(1)],
    }
    found = hanging(open_in, [known], older_than_ms=10)
    assert [(entry.partition, entry.producer.producer_id) for entry in found] == [(first, 2), (second, 1)]
