"""Consumers in groups: sharing, rebalancing, commits; both shells, both protocols, and members not written by us."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import confluent_kafka
import pytest

import ottla
import ottla.client.aio as ottla_aio
from ottla.base.errors import ErrorCode, InvalidConfigError
from ottla.base.types import TopicPartition
from ottla.client.aio.consumer import engine as consumer_engine
from ottla.client.core.group.protocol import GroupAssignor, GroupMemberInfo
from ottla.client.core.group.rebalance import RebalanceListener
from ottla.client.errors import (
    ClientClosedError,
    CommitFailedError,
    ConcurrentUseError,
    FencedInstanceError,
    RebalanceInProgressError,
)
from ottla.testing import EmbeddedBroker
from ottla.wire.api_keys import ApiKey
from tests.broker_process import BrokerProcess
from tests.client.conftest import QUICK_GROUPS
from tests.client.consumer_shells import PATIENCE_S, Shell, make_topic, open_shell, read, wait_until, write
from tests.client.kafka_differences import KAFKA
from tests.kafka_process import KafkaProcess
from tests.waiting import run_async

VALUES = [b"value-%d" % number for number in range(10)]
QUICK = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 100}
PROTOCOLS = {"classic": QUICK, "consumer": {"group_protocol": "consumer"}}


@pytest.fixture(scope="module")
def quick_broker(
    request: pytest.FixtureRequest, broker_kind: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess | KafkaProcess]:
    if broker_kind == KAFKA:
        yield request.getfixturevalue("kafka_broker")
        return
    process = BrokerProcess(tmp_path_factory.mktemp("consumer-groups"), dict(QUICK_GROUPS)).start()
    yield process
    assert process.stop() == 0, "\n".join(process.log_lines)
    assert process.tracebacks() == []


@pytest.fixture(params=["sync", "aio"])
def shell(request: pytest.FixtureRequest, quick_broker: BrokerProcess) -> Iterator[Shell]:
    with open_shell(request.param, quick_broker.bootstrap) as opened:
        yield opened


@pytest.fixture
def topic(quick_broker: BrokerProcess, new_topic: str) -> str:
    make_topic(quick_broker.bootstrap, new_topic, 4)
    for partition in range(4):
        write(quick_broker.bootstrap, new_topic, VALUES, partition)
    return new_topic


class Diary(RebalanceListener):
    def __init__(self) -> None:
        self.entries: list[tuple[str, frozenset[int]]] = []

    def _note(self, what: str, partitions: Collection[TopicPartition]) -> None:
        self.entries.append((what, frozenset(partition.partition for partition in partitions)))

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._note("revoked", partitions)

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._note("assigned", partitions)

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._note("lost", partitions)


def partitions_of(*consumers: Any) -> list[int]:
    return sorted(partition.partition for consumer in consumers for partition in consumer.assignment)


def are_shared(*consumers: Any) -> bool:
    """Whether the four partitions are spread over all consumers."""
    return partitions_of(*consumers) == [0, 1, 2, 3] and all(consumer.assignment for consumer in consumers)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_share_the_partitions_and_take_over(shell: Shell, topic: str, protocol: str) -> None:
    diary = Diary()
    first = shell(group_id=topic, **PROTOCOLS[protocol])
    first.subscribe([topic], listener=diary)
    assert len(read(first, 40)) == 40
    assert diary.entries == [("assigned", frozenset(range(4)))]
    second = shell(group_id=topic, **PROTOCOLS[protocol])
    second.subscribe([topic])
    again = wait_until(lambda: are_shared(first, second), first, second)
    # What the first has read was committed before it gave the partitions up, so nobody reads it again.
    assert again == []
    assert len(first.assignment) == len(second.assignment) == 2
    second.close()
    wait_until(lambda: are_shared(first), first)
    write(shell.bootstrap, topic, [b"late"], partition=0)
    assert [record.value for record in read(first, 1)] == [b"late"]
    first.close()
    assert diary.entries[-1] == ("revoked", frozenset(range(4)))


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_group_moves_to_the_new_protocol_and_back(shell: Shell, topic: str, assignor: str) -> None:
    def member(protocol: str) -> Any:
        own = {"partition_assignment_strategy": [assignor]} if protocol == "classic" else {}
        consumer = shell(group_id=topic, **PROTOCOLS[protocol], **own)
        consumer.subscribe([topic])
        return consumer

    members = [member("classic"), member("classic")]
    records = wait_until(lambda: are_shared(*members), *members)
    for protocol in ("consumer", "consumer", "classic", "classic"):
        members.append(member(protocol))
        records += wait_until(lambda: are_shared(*members), *members)
        members.pop(0).close()
        records += wait_until(lambda: are_shared(*members), *members)
    for partition in range(4):
        write(shell.bootstrap, topic, [b"late"], partition)
    deadline_s = time.monotonic() + PATIENCE_S
    while sum(record.value == b"late" for record in records) < 4:
        assert time.monotonic() < deadline_s, records
        records += [record for consumer in members for record in consumer.poll(0.05)]
    places = [(record.partition, record.offset) for record in records]
    assert sorted(places) == [(partition, offset) for partition in range(4) for offset in range(len(VALUES) + 1)]


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_every_assignor_agrees_with_foreign_members(shell: Shell, topic: str, assignor: str) -> None:
    settings = {**QUICK, "partition_assignment_strategy": [assignor]}
    ours = [shell(group_id=topic, enable_auto_commit=False, **settings) for _ in range(2)]
    for consumer in ours:
        consumer.subscribe([topic])
    wait_until(lambda: are_shared(*ours), *ours)
    if assignor == "sticky":
        return  # librdkafka has no such assignor
    foreign = confluent_kafka.Consumer(
        {
            "bootstrap.servers": shell.bootstrap,
            "group.id": topic,
            "partition.assignment.strategy": assignor,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 100,
        }
    )
    try:
        foreign.subscribe([topic])

        def all_have_some() -> bool:
            foreign.poll(0.05)
            theirs = [partition.partition for partition in foreign.assignment()]
            mine = [consumer.assignment for consumer in ours]
            return bool(theirs) and all(mine) and sorted([*theirs, *partitions_of(*ours)]) == [0, 1, 2, 3]

        wait_until(all_have_some, *ours)
    finally:
        foreign.close()
    wait_until(lambda: are_shared(*ours), *ours)


def test_cooperative_members_keep_what_does_not_move(shell: Shell, topic: str) -> None:
    settings = {**QUICK, "partition_assignment_strategy": "cooperative-sticky"}
    diary, other = Diary(), Diary()
    first = shell(group_id=topic, **settings)
    first.subscribe([topic], listener=diary)
    wait_until(lambda: are_shared(first), first)
    second = shell(group_id=topic, **settings)
    second.subscribe([topic], listener=other)
    wait_until(lambda: are_shared(first, second), first, second)
    revoked = [partitions for what, partitions in diary.entries if what == "revoked"]
    assert len(revoked) == 1
    assert len(revoked[0]) == 2
    assert {partition.partition for partition in second.assignment} == revoked[0]
    assert not [what for what, _ in other.entries if what != "assigned"]


def test_an_assignor_of_your_own(shell: Shell, topic: str) -> None:
    class AllToTheHeaviest(GroupAssignor):
        name = "heaviest"

        def __init__(self, weight: int) -> None:
            self.weight = weight
            self.told: list[bytes | None] = []

        def user_data(self, topics: Collection[str]) -> bytes | None:
            return bytes([self.weight])

        def assign(
            self, members: Sequence[GroupMemberInfo], partition_counts: Mapping[str, int]
        ) -> Mapping[str, Collection[TopicPartition]]:
            heaviest = max(members, key=lambda member: member.user_data or b"")
            everything = [TopicPartition(name, i) for name, count in partition_counts.items() for i in range(count)]
            return {heaviest.member_id: everything}

        def assignment_data(self, member_id: str) -> bytes | None:
            return b"from the leader"

        def on_assignment(
            self, partitions: Collection[TopicPartition], user_data: bytes | None, generation: int
        ) -> None:
            self.told.append(user_data)

    light, heavy = AllToTheHeaviest(1), AllToTheHeaviest(2)
    consumers = [
        shell(group_id=topic, assignors=[assignor], partition_assignment_strategy=["heaviest"], **QUICK)
        for assignor in (light, heavy)
    ]
    for consumer in consumers:
        consumer.subscribe([topic])
    wait_until(lambda: partitions_of(consumers[1]) == [0, 1, 2, 3] and not consumers[0].assignment, *consumers)
    assert heavy.told[-1] == b"from the leader"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_pattern_finds_topics_that_come_later(shell: Shell, new_topic: str, protocol: str) -> None:
    first, second = f"{new_topic}-a", f"{new_topic}-b"
    make_topic(shell.bootstrap, first)
    write(shell.bootstrap, first, VALUES)
    consumer = shell(group_id=new_topic, metadata_max_age_ms=200, **PROTOCOLS[protocol])
    consumer.subscribe(re.compile(f"^{new_topic}-"))
    assert len(read(consumer, 10)) == 10
    make_topic(shell.bootstrap, second)
    write(shell.bootstrap, second, VALUES)
    assert {record.topic for record in read(consumer, 10)} == {second}
    assert consumer.subscription == {first, second}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_positions_are_committed_from_time_to_time(shell: Shell, topic: str, protocol: str) -> None:
    consumer = shell(group_id=topic, auto_commit_interval_ms=50, **PROTOCOLS[protocol])
    consumer.subscribe([topic])
    assert len(read(consumer, 40)) == 40
    partitions = [TopicPartition(topic, index) for index in range(4)]

    def all_committed() -> bool:
        found = consumer.committed(partitions)
        return all(entry is not None and entry.offset == 10 for entry in found.values())

    wait_until(all_committed, consumer)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_commits_in_the_listener_and_seeks_of_what_comes(shell: Shell, topic: str, protocol: str) -> None:
    settings = {"enable_auto_commit": False, **PROTOCOLS[protocol]}
    consumer = shell(group_id=topic, **settings)

    class Keeper(RebalanceListener):
        """With the consumer for threads these calls wait for the loop; with asyncio they are awaited."""

        def on_revoked(self, partitions: Collection[TopicPartition]) -> Any:
            return consumer._inner.commit() if shell.kind == "aio" else consumer.commit()

        def on_assigned(self, partitions: Collection[TopicPartition]) -> Any:
            target = consumer._inner if shell.kind == "aio" else consumer
            for partition in partitions:
                target.seek(partition, 7)

    consumer.subscribe([topic], listener=Keeper())
    assert {record.offset for record in read(consumer, 12)} == {7, 8, 9}
    consumer.close()
    checker = shell(group_id=topic)
    found = checker.committed([TopicPartition(topic, index) for index in range(4)])
    assert [entry.offset for entry in found.values()] == [10] * 4


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_who_does_not_poll_is_left_out(shell: Shell, topic: str, protocol: str) -> None:
    diary = Diary()
    slow = shell(group_id=topic, max_poll_interval_ms=700, enable_auto_commit=False, **PROTOCOLS[protocol])
    slow.subscribe([topic], listener=diary)
    assert len(read(slow, 40)) == 40
    other = shell(group_id=topic, enable_auto_commit=False, **PROTOCOLS[protocol])
    other.subscribe([topic])
    wait_until(lambda: are_shared(other), other)
    with pytest.raises(CommitFailedError):
        slow.commit(dict.fromkeys(slow.assignment, 10))
    wait_until(lambda: are_shared(slow, other), slow, other)
    assert "lost" in [what for what, _ in diary.entries]


def is_member(consumer: Any) -> bool:
    try:
        return bool(consumer.membership.member_id)
    except CommitFailedError:
        return False


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_was_lost_before_a_poll_could_take_it_never_came(shell: Shell, topic: str, protocol: str) -> None:
    diary = Diary()
    slow = shell(group_id=topic, max_poll_interval_ms=700, **PROTOCOLS[protocol])
    other = shell(group_id=topic, **PROTOCOLS[protocol])
    slow.subscribe([topic], listener=diary)
    # With asyncio nothing goes on while nobody polls.
    bystander = shell()
    bystander.assign([(topic, 0)])
    wait_until(lambda: is_member(slow), bystander)
    other.subscribe([topic])
    wait_until(lambda: are_shared(other), other)
    assert diary.entries == []
    wait_until(lambda: are_shared(slow, other), slow, other)
    assert ("assigned", frozenset(range(4))) not in diary.entries


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_was_lost_while_it_came(quick_broker: BrokerProcess, topic: str, protocol: str) -> None:
    settings = {"group_id": topic, "max_poll_interval_ms": 500, **PROTOCOLS[protocol]}

    async def run() -> None:
        class Ponderer(Diary):
            async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:  # type: ignore[override]
                self._note("assigned", partitions)
                while len(self.entries) == 1 and is_member(consumer):
                    await asyncio.sleep(0.01)

        diary = Ponderer()
        async with ottla_aio.Consumer(bootstrap_servers=quick_broker.bootstrap, **settings) as consumer:
            consumer.subscribe([topic], listener=diary)
            async with asyncio.timeout(PATIENCE_S):
                while len(diary.entries) < 3:
                    await consumer.poll(0.05)
        everything = frozenset(range(4))
        assert diary.entries[:3] == [("assigned", everything), ("lost", everything), ("assigned", everything)]

    run_async(run())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_who_is_in_no_group_has_no_membership_to_commit_with(shell: Shell, topic: str, protocol: str) -> None:
    member = shell(group_id=topic, max_poll_interval_ms=700, enable_auto_commit=False, **PROTOCOLS[protocol])
    member.subscribe([topic])
    wait_until(lambda: are_shared(member), member)
    assert (member.membership.group_id, bool(member.membership.member_id)) == (topic, True)
    other = shell(group_id=topic, enable_auto_commit=False, **PROTOCOLS[protocol])
    other.subscribe([topic])
    wait_until(lambda: not is_member(member), other)
    with pytest.raises(CommitFailedError, match="abort the transaction"):
        _ = member.membership
    reader = shell(group_id=topic)
    reader.assign([(topic, 0)])
    assert reader.membership.member_id == ""


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_who_was_thrown_out_moves_no_offsets(shell: Shell, topic: str, protocol: str) -> None:
    diary = Diary()
    slow = shell(group_id=topic, max_poll_interval_ms=700, max_poll_records=5, **PROTOCOLS[protocol])
    slow.subscribe([topic], listener=diary)
    record = read(slow, 1)[0]
    other = shell(group_id=topic, enable_auto_commit=False, **PROTOCOLS[protocol])
    other.subscribe([topic])
    wait_until(lambda: are_shared(other), other)
    other.commit(dict.fromkeys(other.assignment, 10))
    other.close()
    with pytest.raises(CommitFailedError, match="not in its group") as refused:
        slow.commit(record)
    assert not refused.value.retriable
    slow.close()
    assert diary.entries == [("assigned", frozenset(range(4))), ("lost", frozenset(range(4)))]
    found = shell(group_id=topic).committed([TopicPartition(topic, index) for index in range(4)])
    assert [entry.offset for entry in found.values()] == [10] * 4


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_commits_of_what_is_not_held(shell: Shell, topic: str, protocol: str) -> None:
    first, second = (shell(group_id=topic, enable_auto_commit=False, **PROTOCOLS[protocol]) for _ in range(2))
    first.subscribe(re.compile("^matches-nothing"))
    with pytest.raises(CommitFailedError, match="not in its group"):
        first.commit({(topic, 0): 7})
    first.unsubscribe()
    for consumer in (first, second):
        consumer.subscribe([topic])
    wait_until(lambda: are_shared(first, second), first, second)
    with pytest.raises(CommitFailedError, match="does not hold"):
        first.commit(dict.fromkeys(second.assignment, 7))
    first.commit(dict.fromkeys(first.assignment, 7))
    found = second.committed([TopicPartition(topic, index) for index in range(4)])
    assert {partition for partition, entry in found.items() if entry is not None} == first.assignment


def test_a_static_member_keeps_its_place_over_a_restart(shell: Shell, topic: str) -> None:
    settings = {**QUICK, "partition_assignment_strategy": "range"}
    diary = Diary()
    stays = shell(group_id=topic, group_instance_id="a", **settings)
    stays.subscribe([topic], listener=diary)
    goes = shell(group_id=topic, group_instance_id="b", **settings)
    goes.subscribe([topic])
    wait_until(lambda: are_shared(stays, goes), stays, goes)
    held = goes.assignment
    entries = len(diary.entries)
    goes.close()
    back = shell(group_id=topic, group_instance_id="b", **settings)
    back.subscribe([topic])
    wait_until(lambda: back.assignment == held, stays, back)
    assert len(diary.entries) == entries
    usurper = shell(group_id=topic, group_instance_id="b", **settings)
    usurper.subscribe([topic])
    wait_until(lambda: usurper.assignment == held, stays, usurper)
    with pytest.raises(FencedInstanceError):
        wait_until(lambda: False, back, patience_s=10)


def test_a_static_kip_848_member_keeps_its_place_from_others_too(shell: Shell, topic: str) -> None:
    settings = {"group_id": topic, "group_protocol": "consumer"}
    stays = shell(group_instance_id="a", **settings)
    goes = shell(group_instance_id="b", **settings)
    for consumer in (stays, goes):
        consumer.subscribe([topic])
    wait_until(lambda: are_shared(stays, goes), stays, goes)
    held = goes.assignment
    goes.close()
    back = shell(group_instance_id="b", **settings)
    back.subscribe([topic])
    wait_until(lambda: back.assignment == held, stays, back)
    back.unsubscribe()
    back.subscribe([topic])
    wait_until(lambda: back.assignment == held, stays, back)
    usurper = shell(group_instance_id="b", **settings)
    usurper.subscribe([topic])
    with pytest.raises(FencedInstanceError, match="give every consumer its own"):
        wait_until(lambda: False, usurper, patience_s=10)
    wait_until(lambda: back.assignment == held, stays, back)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_subscription_may_change(shell: Shell, topic: str, new_topic: str, protocol: str) -> None:
    other = make_topic(shell.bootstrap, f"{topic}-other")
    write(shell.bootstrap, other, VALUES)
    consumer = shell(group_id=topic, **PROTOCOLS[protocol])
    consumer.subscribe([topic])
    assert len(read(consumer, 40)) == 40
    consumer.subscribe([other])
    assert {record.topic for record in read(consumer, 10)} == {other}
    assert {partition.topic for partition in consumer.assignment} == {other}
    consumer.unsubscribe()
    assert consumer.assignment == frozenset()
    consumer.subscribe([topic])
    wait_until(lambda: are_shared(consumer), consumer)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_subscribing_right_after_unsubscribing(quick_broker: BrokerProcess, topic: str, protocol: str) -> None:
    other = make_topic(quick_broker.bootstrap, f"{topic}-other")

    async def run() -> None:
        async with ottla_aio.Consumer(
            bootstrap_servers=quick_broker.bootstrap, group_id=topic, **PROTOCOLS[protocol]
        ) as consumer:
            for wanted in (topic, other, topic):
                consumer.unsubscribe()
                consumer.subscribe([wanted])
                async with asyncio.timeout(PATIENCE_S):
                    while {partition.topic for partition in consumer.assignment} != {wanted}:
                        await consumer.poll(0.05)

    run_async(run())


def test_the_leader_notices_new_partitions(shell: Shell, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    consumer = shell(group_id=topic, metadata_max_age_ms=200, **QUICK)
    consumer.subscribe([topic])
    wait_until(lambda: are_shared(consumer), consumer)
    admin = AdminClient({"bootstrap.servers": shell.bootstrap})
    admin.create_partitions([NewPartitions(topic, 6)])[topic].result(PATIENCE_S)
    wait_until(lambda: partitions_of(consumer) == [0, 1, 2, 3, 4, 5], consumer)


def test_a_kip_848_group_takes_foreign_members(shell: Shell, topic: str) -> None:
    ours = shell(group_id=topic, group_protocol="consumer")
    ours.subscribe([topic])
    wait_until(lambda: are_shared(ours), ours)
    foreign = confluent_kafka.Consumer(
        {"bootstrap.servers": shell.bootstrap, "group.id": topic, "group.protocol": "consumer"}
    )
    try:
        foreign.subscribe([topic])
        deadline_s = time.monotonic() + PATIENCE_S
        while len(ours.assignment) != 2 or len(foreign.assignment()) != 2:
            assert time.monotonic() < deadline_s
            ours.poll(0.05)
            foreign.poll(0.05)
    finally:
        foreign.close()
    wait_until(lambda: are_shared(ours), ours)


@pytest.mark.parametrize("make", [ottla.Consumer, ottla_aio.Consumer])
@pytest.mark.parametrize("given", [{"assignors": [GroupAssignor()]}, {"partition_assignment_strategy": "range"}])
def test_members_of_kip_848_groups_assign_nothing(make: Any, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfigError, match=r"group\.protocol=consumer") as refused:
        make(bootstrap_servers="localhost:1", group_id="g", group_protocol="consumer", **given)
    assert refused.value.key in ("assignors", "partition.assignment.strategy")


def test_who_missed_a_generation_comes_back_as_itself() -> None:
    """Under another name it would wait until the coordinator has given up its old one."""
    diary = Diary()
    with (
        EmbeddedBroker() as broker,
        ottla.Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            heartbeat_interval_ms=50,
        ) as consumer,
        ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        broker.create_topic("t")
        consumer.subscribe(["t"], listener=diary)
        producer.send("t", b"before").result()
        assert len(read(consumer, 1)) == 1
        name = consumer.membership.member_id
        broker.faults.error(ApiKey.HEARTBEAT, ErrorCode.ILLEGAL_GENERATION)
        wait_until(lambda: ("lost", frozenset({0})) in diary.entries, consumer)
        producer.send("t", b"after").result()
        assert len(read(consumer, 1)) >= 1
        assert consumer.membership.member_id == name


def test_a_commit_in_a_rebalance_can_be_made_after_it() -> None:
    with (
        EmbeddedBroker() as broker,
        ottla.Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g", enable_auto_commit=False) as consumer,
    ):
        broker.create_topic("t")
        consumer.subscribe(["t"])
        wait_until(lambda: bool(consumer.assignment), consumer)
        broker.faults.error(ApiKey.OFFSET_COMMIT, ErrorCode.REBALANCE_IN_PROGRESS)
        with pytest.raises(RebalanceInProgressError, match="poll, and then commit again") as early:
            consumer.commit({("t", 0): 0})
        assert early.value.retriable
        consumer.poll()
        consumer.commit({("t", 0): 0})
        broker.faults.error(ApiKey.OFFSET_COMMIT, ErrorCode.ILLEGAL_GENERATION)
        with pytest.raises(CommitFailedError, match="has gone on") as late:
            consumer.commit({("t", 0): 0})
        assert not late.value.retriable


def test_a_generation_that_begins_without_the_commit_does_not_do_so_without_the_member() -> None:
    with (
        EmbeddedBroker() as broker,
        ottla.Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            enable_auto_commit=False,
            partition_assignment_strategy="cooperative-sticky",
        ) as consumer,
    ):
        broker.create_topic("t")
        broker.create_topic("another")
        consumer.subscribe(["t"])
        wait_until(lambda: bool(consumer.assignment), consumer)
        joining = broker.faults.drop(ApiKey.JOIN_GROUP)
        consumer.subscribe(["t", "another"])
        joining.wait()
        broker.faults.error(ApiKey.OFFSET_COMMIT, ErrorCode.ILLEGAL_GENERATION)
        with pytest.raises(RebalanceInProgressError):
            consumer.commit({("t", 0): 0})


@pytest.mark.parametrize("code", [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_committed_offsets_are_asked_for_again_with_the_next_epoch(code: ErrorCode) -> None:
    with (
        EmbeddedBroker() as broker,
        ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
        ottla.Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            group_protocol="consumer",
        ) as consumer,
    ):
        broker.create_topic("t")
        producer.send("t", b"value").result()
        refused = broker.faults.error(ApiKey.OFFSET_FETCH, code, times=2)
        consumer.subscribe(["t"])
        assert len(read(consumer, 1)) == 1
        assert refused.hits == 2
        broker.faults.error(ApiKey.OFFSET_FETCH, code)
        assert consumer.committed([TopicPartition("t", 0)]) == {("t", 0): None}


@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_topics_of_a_pattern_that_are_deleted_are_given_up(protocol: str) -> None:
    """If they are made anew, they are read as the new topics they are."""
    with (
        EmbeddedBroker(config={**QUICK_GROUPS, "auto.create.topics.enable": False}) as broker,
        ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
        ottla.Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
        ottla.Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            metadata_max_age_ms=200,
            **PROTOCOLS[protocol],
        ) as consumer,
    ):
        topics = {broker.create_topic("t1"), broker.create_topic("t2")}
        consumer.subscribe(re.compile("t."))
        for topic in topics:
            producer.send(topic, b"old").result()
        assert len(read(consumer, 2)) == 2
        for topic in sorted(topics):
            admin.delete_topics([topic]).check()
            topics.remove(topic)
            wait_until(lambda: {partition.topic for partition in consumer.assignment} == topics, consumer)
            assert consumer.subscription == topics
        broker.create_topic("t1")
        producer.send("t1", b"new").result()
        assert [record.value for record in read(consumer, 1)] == [b"new"]


@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_a_topic_that_is_not_read_any_more_is_not_asked_about(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker would make it anew after it was deleted."""
    monkeypatch.setattr(consumer_engine, "_LOOKED_UP_MS", 100)
    with (
        EmbeddedBroker(config=QUICK_GROUPS) as broker,
        ottla.Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
        ottla.Consumer(
            bootstrap_servers=broker.bootstrap_servers, group_id="g", metadata_max_age_ms=50, **PROTOCOLS[protocol]
        ) as consumer,
    ):
        for topic in ("old", "new"):
            broker.create_topic(topic)
            consumer.subscribe([topic])
            wait_until(lambda topic=topic: consumer.assignment == {(topic, 0)}, consumer)  # type: ignore[misc]
        assert consumer.poll(0.3) == []
        admin.delete_topics(["old"]).check()
        assert consumer.poll(0.5) == []
        assert "old" not in admin.list_topics()


@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_who_goes_while_it_joins_says_good_bye(protocol: str) -> None:
    """Others would get the partitions it was given only after its session has ended."""
    with EmbeddedBroker() as broker, ottla.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        broker.create_topic("t")
        consumer = ottla.Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g", group_protocol=protocol)
        api = ApiKey.CONSUMER_GROUP_HEARTBEAT if protocol == "consumer" else ApiKey.SYNC_GROUP
        joining = broker.faults.delay(api, 300)
        consumer.subscribe(["t"])
        joining.wait()
        consumer.close()
        described = admin.describe_groups(["g"])
        if "g" in described.errors:
            # A group that is empty may be gone as well.
            assert described.errors["g"].code is ErrorCode.GROUP_ID_NOT_FOUND
        else:
            assert described["g"].members == ()


def test_a_cancelled_poll_loses_no_rebalance(quick_broker: BrokerProcess, topic: str) -> None:
    async def run() -> None:
        diary = Diary()
        async with ottla_aio.Consumer(
            bootstrap_servers=quick_broker.bootstrap, group_id=topic, auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe([topic], listener=diary)
            count = 0
            deadline_s = time.monotonic() + PATIENCE_S
            while count < 40 and time.monotonic() < deadline_s:
                try:
                    count += len(await asyncio.wait_for(consumer.poll(10), 0.004))
                except TimeoutError:
                    continue
            assert count == 40
            assert ("assigned", frozenset(range(4))) in diary.entries

    run_async(run())


def test_one_task_polls_at_a_time(quick_broker: BrokerProcess, topic: str) -> None:
    async def run() -> None:
        class Slow(Diary):
            async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:  # type: ignore[override]
                self._note("assigned", partitions)
                with pytest.raises(ConcurrentUseError, match="another task"):
                    await consumer.poll()

        diary = Slow()
        async with ottla_aio.Consumer(
            bootstrap_servers=quick_broker.bootstrap, group_id=topic, auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe([topic], listener=diary)
            found = await asyncio.gather(
                consumer.poll(PATIENCE_S), consumer.poll(), consumer.poll_arrow(), return_exceptions=True
            )
            assert isinstance(found[0], list) and found[0]
            assert [type(error) for error in found[1:]] == [ConcurrentUseError, ConcurrentUseError]
            assert diary.entries == [("assigned", frozenset(range(4)))]
            await consumer.poll()

    run_async(run())


def test_a_listener_may_close_the_consumer(shell: Shell, topic: str) -> None:
    class Closing(Diary):
        def on_assigned(self, partitions: Collection[TopicPartition]) -> Any:
            self._note("assigned", partitions)
            return consumer._inner.close() if shell.kind == "aio" else consumer.close()

    diary = Closing()
    consumer = shell(group_id=topic, **QUICK)
    consumer.subscribe([topic], listener=diary)
    with pytest.raises(ClientClosedError):
        wait_until(lambda: False, consumer)
    assert diary.entries == [("assigned", frozenset(range(4))), ("revoked", frozenset(range(4)))]


def test_closing_ends_a_poll_that_waits(quick_broker: BrokerProcess, topic: str) -> None:
    async def run() -> None:
        consumer = ottla_aio.Consumer(bootstrap_servers=quick_broker.bootstrap)
        await consumer.start()
        consumer.assign([(topic, 77)])
        waiting = asyncio.ensure_future(consumer.poll(PATIENCE_S))
        await asyncio.sleep(0.05)
        await consumer.close()
        with pytest.raises(ClientClosedError):
            await waiting

    run_async(run())
