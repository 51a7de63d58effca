"""Groups as administrators see and change them, through every client's own calls."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import aiokafka
import kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka.admin import MemberToRemove
from kafka.errors import GroupIdNotFoundError, GroupSubscribedToTopicError, NoError, NonEmptyGroupError

from ottla.base.errors import ErrorCode
from tests.broker_process import BrokerProcess
from tests.interop.groups.clients import KIP_848
from tests.interop.groups.raw_member import RawMember
from tests.interop.groups.scene import Scene, committed_offsets, wait_until, write_records
from tests.interop.groups.test_members_come_and_go import all_of
from tests.interop.peers.confluent import LOG, make_topic
from tests.interop.peers.peer import PATIENCE_S
from tests.raw_client import RawClient
from tests.waiting import run_async

pytestmark = pytest.mark.interop

PARTITIONS = 2
RECORDS = 10


@dataclass
class Groups:
    """Three groups about one topic: of each kind one with a member, and one that only has offsets."""

    broker: BrokerProcess
    topic: str

    @property
    def classic(self) -> str:
        return f"{self.topic}-classic"

    @property
    def kip_848(self) -> str:
        return f"{self.topic}-kip-848"

    @property
    def simple(self) -> str:
        return f"{self.topic}-simple"

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        with RawClient(self.broker.port) as client:
            return committed_offsets(client, group)


@pytest.fixture
def groups(group_broker: BrokerProcess, new_topic: str) -> Iterator[Groups]:
    made = Groups(group_broker, new_topic)
    make_topic(group_broker.bootstrap, new_topic, PARTITIONS)
    write_records(group_broker.bootstrap, new_topic, PARTITIONS, RECORDS)
    classic = Scene(group_broker, made.classic, "confluent-range")
    kip_848 = Scene(group_broker, made.kip_848, KIP_848)
    with RawMember(group_broker.port, made.simple) as committer, classic, kip_848:
        classic.join("classic-member", topics=(new_topic,), instance_id="instance")
        kip_848.join("new-member", topics=(new_topic,))
        classic.settle({"classic-member"}, all_of(new_topic, PARTITIONS))
        kip_848.settle({"new-member"}, all_of(new_topic, PARTITIONS))
        assert [committer.commit(new_topic, index + 1, partition=index) for index in range(PARTITIONS)] == [0, 0]
        wait_until(lambda: made.committed(made.kip_848) != {}, lambda: "nothing is committed")
        yield made


# confluent-kafka


@pytest.fixture
def confluent_admin(group_broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": group_broker.bootstrap}, logger=LOG)


def refusal(future: Future[Any]) -> int:
    with pytest.raises(KafkaException) as refused:
        future.result(PATIENCE_S)
    return int(refused.value.args[0].code())


def test_confluent_kafka_lists_groups_by_state_and_type(groups: Groups, confluent_admin: AdminClient) -> None:
    def listed(**filters: Any) -> dict[str, tuple[Any, Any, bool]]:
        result = confluent_admin.list_consumer_groups(**filters).result(PATIENCE_S)
        assert result.errors == []
        own = [group for group in result.valid if group.group_id.startswith(groups.topic)]
        return {group.group_id: (group.state, group.type, group.is_simple_consumer_group) for group in own}

    state, kind = ConsumerGroupState, ConsumerGroupType
    everything = {
        groups.classic: (state.STABLE, kind.CLASSIC, False),
        groups.kip_848: (state.STABLE, kind.CONSUMER, False),
        groups.simple: (state.EMPTY, kind.CLASSIC, True),
    }
    assert listed() == everything
    assert listed(states={state.EMPTY}).keys() == {groups.simple}
    assert listed(states={state.STABLE, state.EMPTY}) == everything
    assert listed(states={state.DEAD}) == {}
    assert listed(types={kind.CONSUMER}).keys() == {groups.kip_848}
    assert listed(types={kind.CLASSIC}, states={state.STABLE}).keys() == {groups.classic}


def test_confluent_kafka_describes_groups_of_both_kinds(groups: Groups, confluent_admin: AdminClient) -> None:
    asked = [groups.classic, groups.kip_848, groups.simple]
    described = {
        group: future.result(PATIENCE_S) for group, future in confluent_admin.describe_consumer_groups(asked).items()
    }
    for group, client_id, instance_id, assignor in (
        (groups.classic, "classic-member", "instance", "range"),
        (groups.kip_848, "new-member", None, "uniform"),
    ):
        found = described[group]
        assert (found.state, found.is_simple_consumer_group) == (ConsumerGroupState.STABLE, False)
        assert found.partition_assignor == assignor
        (member,) = found.members
        assert (member.client_id, member.group_instance_id) == (client_id, instance_id)
        assert member.host == "/127.0.0.1"
        owned = {(tp.topic, tp.partition) for tp in member.assignment.topic_partitions}
        assert owned == all_of(groups.topic, PARTITIONS)
    simple = described[groups.simple]
    assert (simple.state, simple.is_simple_consumer_group, simple.members) == (ConsumerGroupState.EMPTY, True, [])


def test_confluent_kafka_reads_changes_and_deletes_offsets(groups: Groups, confluent_admin: AdminClient) -> None:
    def offsets(group: str) -> dict[int, int]:
        asked = [ConsumerGroupTopicPartitions(group)]
        found = confluent_admin.list_consumer_group_offsets(asked)[group].result(PATIENCE_S)
        return {tp.partition: tp.offset for tp in found.topic_partitions}

    def alter(group: str, partition: int, offset: int) -> Any:
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(groups.topic, partition, offset)])
        return confluent_admin.alter_consumer_group_offsets([wanted])[group]

    assert offsets(groups.simple) == {0: 1, 1: 2}
    (changed,) = alter(groups.simple, 1, 9).result(PATIENCE_S).topic_partitions
    assert changed.error is None
    assert offsets(groups.simple) == {0: 1, 1: 9}
    for group in (groups.classic, groups.kip_848):
        (refused,) = alter(group, 0, 0).result(PATIENCE_S).topic_partitions
        assert refused.error.code() == ErrorCode.UNKNOWN_MEMBER_ID
        assert refusal(confluent_admin.delete_consumer_groups([group])[group]) == ErrorCode.NON_EMPTY_GROUP
    confluent_admin.delete_consumer_groups([groups.simple])[groups.simple].result(PATIENCE_S)
    assert groups.committed(groups.simple) == {}
    gone = confluent_admin.delete_consumer_groups([groups.simple])[groups.simple]
    assert refusal(gone) == ErrorCode.GROUP_ID_NOT_FOUND


# kafka-python


@pytest.fixture
def kafka_python_admin(group_broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=group_broker.bootstrap)
    yield client
    client.close()


def test_kafka_python_lists_and_describes_groups(groups: Groups, kafka_python_admin: KafkaAdminClient) -> None:
    def listed(**filters: Any) -> set[tuple[str, str, str, str]]:
        return {
            (group["group_id"], group["protocol_type"], group["group_state"], group["group_type"])
            for group in kafka_python_admin.list_groups(**filters)
            if group["group_id"].startswith(groups.topic)
        }

    classic = (groups.classic, "consumer", "Stable", "classic")
    kip_848 = (groups.kip_848, "consumer", "Stable", "consumer")
    simple = (groups.simple, "", "Empty", "classic")
    assert listed() == {classic, kip_848, simple}
    assert listed(states_filter=["Empty"]) == {simple}
    assert listed(types_filter=["consumer"]) == {kip_848}

    described = kafka_python_admin.describe_groups([groups.classic])[groups.classic]
    assert (described["error"], described["group_state"], described["protocol_data"]) == (None, "Stable", "range")
    (member,) = described["members"]
    assert (member["client_id"], member["group_instance_id"]) == ("classic-member", "instance")
    assigned = {topic["topic"]: topic["partitions"] for topic in member["member_assignment"]["assigned_partitions"]}
    assert assigned == {groups.topic: [0, 1]}


def test_kafka_python_changes_and_deletes_offsets_and_groups(
    groups: Groups, kafka_python_admin: KafkaAdminClient
) -> None:
    admin = kafka_python_admin
    first, second = (kafka.TopicPartition(groups.topic, index) for index in range(PARTITIONS))
    found = admin.list_group_offsets([groups.simple, groups.kip_848])
    assert {tp: item.offset for tp, item in found[groups.simple].items()} == {first: 1, second: 2}
    assert found.keys() == {groups.simple, groups.kip_848}

    changed = kafka.OffsetAndMetadata(7, "by hand", -1)
    assert admin.alter_group_offsets(groups.simple, {first: changed}) == {first: NoError}
    assert admin.list_group_offsets(groups.simple)[groups.simple][first] == changed
    assert admin.delete_group_offsets(groups.simple, [first]) == {first: NoError}
    assert groups.committed(groups.simple) == {(groups.topic, 1): 2}
    for busy in (groups.classic, groups.kip_848):
        assert admin.delete_group_offsets(busy, [first]) == {first: GroupSubscribedToTopicError}
        assert admin.delete_groups([busy]) == {busy: NonEmptyGroupError.__name__}
    admin.delete_groups([groups.simple])
    assert groups.committed(groups.simple) == {}
    with pytest.raises(GroupIdNotFoundError):
        admin.delete_group_offsets(groups.simple, [first])


def test_kafka_python_removes_a_static_member(groups: Groups, kafka_python_admin: KafkaAdminClient) -> None:
    def member_ids() -> list[str]:
        described = kafka_python_admin.describe_groups([groups.classic])[groups.classic]
        return [member["member_id"] for member in described["members"]]

    before = member_ids()
    member = MemberToRemove(group_instance_id="instance")
    removed = kafka_python_admin.remove_group_members(groups.classic, [member])
    assert list(removed.values()) == [NoError]
    # Its program is still there, and joins again with a new id.
    wait_until(lambda: len(member_ids()) == 1 and member_ids() != before, lambda: str(member_ids()))


# aiokafka


def test_aiokafka_lists_and_describes_groups_and_reads_offsets(groups: Groups) -> None:
    async def scenario(admin: AIOKafkaAdminClient) -> None:
        listed = {group for group, *_ in await admin.list_consumer_groups()}
        assert {groups.classic, groups.kip_848, groups.simple} <= listed
        (response,) = await admin.describe_consumer_groups([groups.classic])
        ((code, group, state, kind, protocol, members, *_),) = response.groups
        assert (code, group, state, kind, protocol) == (0, groups.classic, "Stable", "consumer", "range")
        assert len(members) == 1
        found = await admin.list_consumer_group_offsets(groups.simple)
        assert {tp.partition: item.offset for tp, item in found.items()} == {0: 1, 1: 2}
        asked = [aiokafka.TopicPartition(groups.topic, 1)]
        one = await admin.list_consumer_group_offsets(groups.simple, partitions=asked)
        assert {tp.partition: item.offset for tp, item in one.items()} == {1: 2}

    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=groups.broker.bootstrap)
        await admin.start()
        try:
            await scenario(admin)
        finally:
            await admin.close()

    run_async(run())
