"""A broker whose follower never confirms shows nothing uncommitted to anyone, whatever it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ottla.base.errors import ErrorCode
from ottla.machines.cluster.topic_names import GROUP_METADATA_TOPIC
from ottla.wire.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.apis.delete_groups import DeleteGroupsRequest
from ottla.wire.apis.describe_groups import DescribeGroupsRequest
from ottla.wire.apis.describe_transactions import DescribeTransactionsRequest
from ottla.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.apis.heartbeat import HeartbeatRequest
from ottla.wire.apis.init_producer_id import InitProducerIdRequest
from ottla.wire.apis.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.apis.list_groups import ListGroupsRequest
from ottla.wire.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.apis.list_transactions import ListTransactionsRequest
from ottla.wire.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.unit.broker.unconfirmed_broker import NOW_MS, TOPIC, UnconfirmedBroker, errors_of
from tests.waiting import run_async

REFUSALS = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    # What a producer hears of a coordinator that cannot say yet whether a partition is in its transaction.
    ErrorCode.NOT_ENOUGH_REPLICAS,
}
"""What may be said instead of an answer: try again, nothing is known yet."""
GROUPS = ["simple", "classic", "consumer", "new"]
IDS = ["open", "idle", "new"]
UNCOMMITTED_OFFSET = 7_000_000


def _list_offsets(isolation_level: int, timestamp: int) -> ListOffsetsRequest:
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in (0, 1)]
    topics = [ListOffsetsTopic(name=TOPIC, partitions=partitions)]
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)


def _fetch(isolation_level: int) -> FetchRequest:
    partitions = [FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in (0, 1)]
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=isolation_level,
        session_epoch=-1,
        topics=[FetchTopic(topic=TOPIC, partitions=partitions)],
    )


def _verify(world: UnconfirmedBroker, partition: int) -> AddPartitionsToTxnRequest:
    asked = AddPartitionsToTxnTransaction(
        transactional_id="open",
        producer_id=world.open.producer_id,
        producer_epoch=world.open.epoch,
        verify_only=True,
        topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[partition])],
    )
    return AddPartitionsToTxnRequest(transactions=[asked])


Ask = Callable[[UnconfirmedBroker], asyncio.Task[Any]]

READS: dict[str, Ask] = {
    "offsets, many groups": lambda w: w.send(
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None) for group in GROUPS]), 8
    ),
    "offsets of one group": lambda w: w.send(OffsetFetchRequest(group_id="simple", topics=None), 5),
    "stable offsets": lambda w: w.send(OffsetFetchRequest(group_id="simple", topics=None, require_stable=True), 7),
    "describe groups": lambda w: w.send(DescribeGroupsRequest(groups=GROUPS), 5),
    "describe consumer groups": lambda w: w.send(ConsumerGroupDescribeRequest(group_ids=GROUPS), 0),
    "list groups": lambda w: w.send(ListGroupsRequest(), 5),
    "describe transactions": lambda w: w.send(DescribeTransactionsRequest(transactional_ids=IDS), 0),
    "list transactions": lambda w: w.send(ListTransactionsRequest(), 0),
    "verify what is in": lambda w: w.send(_verify(w, 0), 4),
    "verify what is not": lambda w: w.send(_verify(w, 1), 4),
    "heartbeat": lambda w: w.send(
        HeartbeatRequest(group_id="classic", generation_id=w.classic.generation, member_id=w.classic.member_id), 3
    ),
    "fetch": lambda w: w.send(_fetch(0), 11),
    "fetch committed": lambda w: w.send(_fetch(1), 11),
    "latest": lambda w: w.send(_list_offsets(0, -1), 5),
    "latest stable": lambda w: w.send(_list_offsets(1, -1), 5),
    "earliest": lambda w: w.send(_list_offsets(0, -2), 5),
    "by time": lambda w: w.send(_list_offsets(0, NOW_MS + 1), 5),
}


def _offset_delete() -> OffsetDeleteRequest:
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    return OffsetDeleteRequest(group_id="simple", topics=[OffsetDeleteRequestTopic(name=TOPIC, partitions=partitions)])


def _commit_in_transaction(world: UnconfirmedBroker) -> TxnOffsetCommitRequest:
    partition = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=UNCOMMITTED_OFFSET, committed_metadata=""
    )
    return TxnOffsetCommitRequest(
        transactional_id="open",
        group_id="simple",
        producer_id=world.open.producer_id,
        producer_epoch=world.open.epoch,
        topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
    )


def _join_consumer_group(group: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group, rebalance_timeout_ms=60_000, subscribed_topic_names=[TOPIC], topic_partitions=[]
    )


WRITES: dict[str, Ask] = {
    "commit": lambda w: w.commit_offset("simple", UNCOMMITTED_OFFSET),
    "commit of a new group": lambda w: w.commit_offset("new", UNCOMMITTED_OFFSET),
    "commit and add": lambda w: w.send(_commit_in_transaction(w), 5),
    "add offsets": lambda w: w.send(
        AddOffsetsToTxnRequest(
            transactional_id="open", producer_id=w.open.producer_id, producer_epoch=w.open.epoch, group_id="simple"
        ),
        3,
    ),
    "commit in what was added": lambda w: w.send(_commit_in_transaction(w), 4),
    "join": lambda w: w.send(_join_consumer_group("consumer"), 0),
    "make a consumer group": lambda w: w.send(_join_consumer_group("new consumers"), 0),
    "leave": lambda w: w.send(
        LeaveGroupRequest(group_id="classic", members=[MemberIdentity(member_id=w.classic.member_id)]), 4
    ),
    "delete offsets": lambda w: w.send(_offset_delete(), 0),
    "delete a group": lambda w: w.send(DeleteGroupsRequest(groups_names=["simple"]), 1),
    "new transactional id": lambda w: w.send(
        InitProducerIdRequest(transactional_id="new", transaction_timeout_ms=60_000), 4
    ),
    "fence": lambda w: w.send(InitProducerIdRequest(transactional_id="idle", transaction_timeout_ms=60_000), 4),
    "add": lambda w: w.add_partition(w.open, 1),
    "begin": lambda w: w.add_partition(w.idle, 1),
    "end": lambda w: w.end(w.open),
    "produce": lambda w: w.produce(b"uncommitted", acks=-1),
    "produce in a transaction": lambda w: w.produce(b"uncommitted", acks=-1, producer=w.open),
    "produce and add": lambda w: w.produce(b"uncommitted", acks=-1, producer=w.idle, partition=1, version=12),
    "produce to what was added": lambda w: w.produce(b"uncommitted", acks=-1, producer=w.open, partition=1),
    "produce in what was begun": lambda w: w.produce(b"uncommitted", acks=-1, producer=w.idle, partition=1),
}
NOT_IN_TRANSACTION = ("produce to what was added", "produce in what was begun", "commit in what was added")
"""As long as nothing was added or begun, this is the truth."""


async def _produce_to_leader(world: UnconfirmedBroker) -> None:
    """That the leader has it is all a producer with acks=1 wants to know."""
    assert errors_of(await world.produce(b"uncommitted", acks=1)) == []


OTHERS: dict[str, Callable[[UnconfirmedBroker], Awaitable[None]]] = {
    "produce to the leader": _produce_to_leader,
    "elect anew": lambda w: w.freeze(epochs_up=1),
    "wait": lambda w: asyncio.sleep(0.002),
}


def _without_epochs(reply: Any) -> Any:
    """Which leader answers is not the question."""
    for topic in getattr(reply, "topics", None) or ():
        for partition in getattr(topic, "partitions", ()):
            if hasattr(partition, "leader_epoch"):
                partition.leader_epoch = -1
    return reply


def check_read(name: str, reply: Any, before: Any) -> None:
    if _without_epochs(reply) != before:
        errors = errors_of(reply)
        assert errors and set(errors) - set(errors_of(before)) <= REFUSALS, (name, reply)
        assert str(UNCOMMITTED_OFFSET) not in str(reply) and "uncommitted" not in str(reply), (name, reply)


def check_write(name: str, reply: Any) -> None:
    errors = errors_of(reply)
    assert errors, (name, "was confirmed", reply)
    truths = {ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE} if name in NOT_IN_TRANSACTION else set()
    assert set(errors) <= REFUSALS | truths, (name, errors)


MEMORY = Path("/dev/shm")
"""Where files cost no time to sync, on systems that have it: every example starts a broker of its own."""


def run(scenario: Callable[[UnconfirmedBroker], Awaitable[None]], *, wait_ms: int) -> None:
    async def start(data_dir: Path) -> None:
        world = await UnconfirmedBroker.start(data_dir, wait_ms)
        try:
            await world.freeze()
            await scenario(world)
        finally:
            await world.broker.stop()

    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as directory:
        run_async(start(Path(directory) / "data"))


async def what_is_committed(world: UnconfirmedBroker) -> dict[str, Any]:
    """All that is there is committed, so every question is answered at once."""
    found = {}
    for name, ask in READS.items():
        reply = ask(world)
        await asyncio.sleep(0)
        assert reply.done(), f"{name} has waited for nothing"
        found[name] = _without_epochs(reply.result())
        assert not set(errors_of(found[name])) & REFUSALS, name
    return found


STEPS = [*READS, *WRITES, *OTHERS]


@given(steps=st.lists(st.sampled_from(STEPS), min_size=1, max_size=25))
@example(steps=["commit", "offsets of one group", "offsets, many groups", "list groups", "describe groups"])
@example(steps=["end", "verify what is in", "describe transactions", "list transactions", "fetch committed"])
@example(steps=["add", "produce to what was added", "begin", "produce in what was begun", "verify what is not"])
@example(steps=["add offsets", "commit in what was added", "commit and add"])
@example(steps=["commit of a new group", "elect anew", "offsets, many groups", "wait", "list groups"])
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
def test_nothing_uncommitted_is_shown(steps: list[str]) -> None:
    async def scenario(world: UnconfirmedBroker) -> None:
        before = await what_is_committed(world)
        replies: list[tuple[str, asyncio.Task[Any]]] = []
        for name in steps:
            if name in OTHERS:
                await OTHERS[name](world)
            else:
                ask = READS.get(name) or WRITES[name]
                replies.append((name, ask(world)))
                for _ in range(5):
                    await asyncio.sleep(0)  # Whatever it does before it waits is done now.
        for name, reply in replies:
            answer = await asyncio.wait_for(reply, 30)
            if name in READS:
                check_read(name, answer, before[name])
            else:
                check_write(name, answer)
        # A transaction that could still be forgotten has no records anywhere: nobody would ever end it.
        assert world.broker.replicas.led(TOPIC, 1).log.log_end_offset == 0
        assert world.open.producer_id not in world.broker.replicas.led(GROUP_METADATA_TOPIC, 0).log.producers.entries

    run(scenario, wait_ms=20)


@pytest.mark.parametrize("name", [name for name in WRITES if name not in NOT_IN_TRANSACTION])
def test_what_is_confirmed_later_is_answered_and_shown_then(name: str) -> None:
    """The same requests, with a follower that confirms in the end: they wait for it, and for nothing else."""

    async def scenario(world: UnconfirmedBroker) -> None:
        before = await what_is_committed(world)
        reply = WRITES[name](world)
        await asyncio.sleep(0.002)
        assert not reply.done()
        await world.thaw()
        answer = await asyncio.wait_for(reply, 30)
        assert not set(errors_of(answer)) & REFUSALS, answer
        after = await what_is_committed(world)
        assert after != before

    run(scenario, wait_ms=60_000)
