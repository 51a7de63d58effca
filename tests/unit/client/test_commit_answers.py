"""What becomes of a commit, or of the question what is committed, for each answer a coordinator may give."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from ottla import aio
from ottla.base.errors import ErrorCode
from ottla.client.core.consumer.cursors import OffsetAndMetadata
from ottla.errors import (
    ClientClosedError,
    ClientError,
    CommitFailedError,
    FencedInstanceError,
    RebalanceInProgressError,
)
from ottla.wire.apis.find_coordinator import FindCoordinatorRequest
from ottla.wire.apis.metadata import MetadataRequest
from ottla.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.waiting import run_async

from .scripted_broker import ScriptedBroker
from .test_silent_broker import FIRST, PATIENCE_S, TOPIC, found, leaders

E = ErrorCode


class World:
    """A consumer that is in no group, and the codes its coordinator answers with, one after the other."""

    consumer: aio.Consumer[bytes | None, bytes | None]

    def __init__(self, broker: ScriptedBroker) -> None:
        self.broker = broker
        self.codes: list[int] = []
        self.group_code = 0
        broker.on(MetadataRequest, lambda _: broker.metadata(topics=[leaders((1, 0))]))
        broker.on(FindCoordinatorRequest, lambda _: found(broker))
        broker.on(OffsetCommitRequest, lambda _: self._committed(self.codes.pop(0)))
        broker.on(OffsetFetchRequest, lambda _: self._fetched(self.codes.pop(0)))

    def _committed(self, code: int) -> OffsetCommitResponse:
        partitions = [OffsetCommitResponsePartition(partition_index=0, error_code=code)]
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name=TOPIC, partitions=partitions)])

    def _fetched(self, code: int) -> OffsetFetchResponse:
        partition = OffsetFetchResponsePartitions(
            partition_index=0,
            committed_offset=-1 if code else 5,
            committed_leader_epoch=2,
            metadata="m",
            error_code=code,
        )
        topics = [OffsetFetchResponseTopics(name=TOPIC, partitions=[partition])]
        group = OffsetFetchResponseGroup(group_id="group", topics=topics, error_code=self.group_code)
        self.group_code = 0
        return OffsetFetchResponse(groups=[group])

    @property
    def searches(self) -> int:
        return len(self.broker.asked(FindCoordinatorRequest))


@asynccontextmanager
async def world(**settings: object) -> AsyncIterator[World]:
    async with ScriptedBroker() as broker:
        here = World(broker)
        quick = {"retry.backoff.ms": 1, "group.id": "group", "enable.auto.commit": False}
        async with aio.Consumer({"bootstrap.servers": broker.address, **quick, **settings}) as here.consumer:
            yield here


@pytest.mark.parametrize(
    ("codes", "searches"),
    [
        ([E.NONE], 1),
        ([E.COORDINATOR_LOAD_IN_PROGRESS, E.NONE], 1),
        ([E.NOT_COORDINATOR, E.NONE], 2),
        ([E.COORDINATOR_NOT_AVAILABLE, E.NONE], 2),
        ([E.REQUEST_TIMED_OUT, E.NETWORK_EXCEPTION, E.NONE], 1),
        ([E.UNKNOWN_TOPIC_OR_PARTITION, E.NONE], 1),
    ],
)
def test_what_passes_is_tried_again(codes: list[ErrorCode], searches: int) -> None:
    async def scenario() -> None:
        async with world() as here:
            here.codes = list(codes)
            await here.consumer.commit({FIRST: OffsetAndMetadata(5, "note", 3)}, timeout=PATIENCE_S)
            assert (here.codes, here.searches) == ([], searches)
            asked = here.broker.asked(OffsetCommitRequest)
            assert len(asked) == len(codes)
            for request in asked:
                (partition,) = request.topics[0].partitions
                assert (request.group_id, request.topics[0].name, partition.partition_index) == ("group", TOPIC, 0)
                stored = partition.committed_offset, partition.committed_metadata, partition.committed_leader_epoch
                assert stored == (5, "note", 3)

    run_async(scenario())


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (E.ILLEGAL_GENERATION, CommitFailedError, "without this consumer's offsets"),
        (E.UNKNOWN_MEMBER_ID, CommitFailedError, "without this consumer's offsets"),
        (E.STALE_MEMBER_EPOCH, CommitFailedError, "without this consumer's offsets"),
        (E.REBALANCE_IN_PROGRESS, RebalanceInProgressError, "the group is rebalancing"),
        (E.FENCED_INSTANCE_ID, FencedInstanceError, "the same group.instance.id"),
        (E.GROUP_AUTHORIZATION_FAILED, ClientError, f"committing {FIRST}"),
        (E.OFFSET_METADATA_TOO_LARGE, ClientError, f"committing {FIRST}"),
    ],
)
def test_what_does_not_pass_is_told_at_once(code: ErrorCode, kind: type[ClientError], words: str) -> None:
    async def scenario() -> None:
        async with world() as here:
            here.codes = [code]
            with pytest.raises(kind, match=words) as refusal:
                await here.consumer.commit({FIRST: 5}, timeout=PATIENCE_S)
            assert type(refusal.value) is kind and refusal.value.code is code
            assert (here.codes, here.searches) == ([], 1)

    run_async(scenario())


def _tell(ended: asyncio.Future[ClientError | None], offsets: object, error: ClientError | None) -> None:
    ended.set_result(error)


def test_in_the_background_there_is_one_try() -> None:
    async def scenario() -> None:
        async with world() as here:
            for code in (E.COORDINATOR_LOAD_IN_PROGRESS, E.NONE):
                ended: asyncio.Future[ClientError | None] = asyncio.get_running_loop().create_future()
                here.codes = [code]
                here.consumer.commit_async({FIRST: 7}, partial(_tell, ended))
                error = await ended
                assert (None if error is None else error.code, here.codes) == (code or None, [])

    run_async(scenario())


def test_when_the_time_does_not_last_for_another_try_the_last_error_is_told() -> None:
    async def scenario() -> None:
        async with world(**{"retry.backoff.ms": 60_000, "retry.backoff.max.ms": 60_000}) as here:
            here.codes = [E.COORDINATOR_LOAD_IN_PROGRESS]
            with pytest.raises(ClientError) as refusal:
                await here.consumer.commit({FIRST: 5}, timeout=PATIENCE_S)
            assert (refusal.value.code, here.codes) == (E.COORDINATOR_LOAD_IN_PROGRESS, [])

    run_async(scenario())


def test_a_coordinator_that_cannot_be_found_is_named_as_the_reason() -> None:
    async def scenario() -> None:
        async with world() as here:
            missing = found(here.broker)
            missing.coordinators[0].error_code = E.COORDINATOR_NOT_AVAILABLE
            here.broker.on(FindCoordinatorRequest, lambda _: missing)
            with pytest.raises(ClientError) as refusal:
                await here.consumer.commit({FIRST: 5}, timeout=0.2)
            assert refusal.value.code in (E.COORDINATOR_NOT_AVAILABLE, E.REQUEST_TIMED_OUT)
            assert here.searches > 1

    run_async(scenario())


@pytest.mark.parametrize(
    ("group_code", "codes", "searches"),
    [
        (E.NONE, [E.NONE], 1),
        (E.NOT_COORDINATOR, [E.NONE, E.NONE], 2),
        (E.COORDINATOR_LOAD_IN_PROGRESS, [E.NONE, E.NONE], 1),
        (E.NONE, [E.UNSTABLE_OFFSET_COMMIT, E.NONE], 1),
        (E.STALE_MEMBER_EPOCH, [E.NONE, E.NONE], 1),
        (E.UNKNOWN_MEMBER_ID, [E.NONE, E.NONE], 1),
    ],
)
def test_what_is_committed_is_asked_for_again_until_it_is_settled(
    group_code: ErrorCode, codes: list[ErrorCode], searches: int
) -> None:
    async def scenario() -> None:
        async with world() as here:
            here.codes, here.group_code = list(codes), group_code
            committed = await here.consumer.committed([FIRST], timeout=PATIENCE_S)
            assert committed == {FIRST: OffsetAndMetadata(5, "m", 2)}
            assert (here.codes, here.searches) == ([], searches)
            # Offsets of a transaction that is not settled yet could still be taken back (KIP-447).
            assert all(asked.require_stable for asked in here.broker.asked(OffsetFetchRequest))

    run_async(scenario())


@pytest.mark.parametrize(
    ("group_code", "code"), [(E.GROUP_AUTHORIZATION_FAILED, E.NONE), (E.NONE, E.TOPIC_AUTHORIZATION_FAILED)]
)
def test_who_may_not_know_what_is_committed_is_told(group_code: ErrorCode, code: ErrorCode) -> None:
    async def scenario() -> None:
        async with world() as here:
            here.codes, here.group_code = [code], group_code
            with pytest.raises(ClientError) as refusal:
                await here.consumer.committed([FIRST], timeout=PATIENCE_S)
            assert refusal.value.code is (group_code or code)
            assert ("group group" if group_code else str(FIRST)) in str(refusal.value)

    run_async(scenario())


def test_a_closed_consumer_commits_nothing() -> None:
    async def scenario() -> None:
        async with world() as here:
            pass
        with pytest.raises(ClientClosedError):
            await here.consumer.commit({FIRST: 5})
        assert here.broker.asked(OffsetCommitRequest) == []

    run_async(scenario())
