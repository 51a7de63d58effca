"""Where a consumer begins and goes on to read, for each answer that leaders may give to the question."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ottla import TopicPartition, aio
from ottla.base.errors import ErrorCode
from ottla.client.core.consumer.offset_requests import OffsetAndTimestamp
from ottla.errors import ClientError, LogTruncationError, NoOffsetError
from ottla.wire.apis import request_class
from ottla.wire.apis.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.apis.fetch import FetchRequest, FetchResponse
from ottla.wire.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.apis.metadata import MetadataRequest, MetadataResponseTopic
from ottla.wire.apis.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tests.waiting import run_async, until

from .scripted_broker import ScriptedBroker
from .test_silent_broker import FIRST, PATIENCE_S, SECOND, TOPIC, TOPIC_ID, leaders, never

E = ErrorCode
EARLIEST, LATEST = -2, -1
ENDS = {EARLIEST: 3, LATEST: 90, 0: 0}


class World:
    """One broker that leads both partitions, and the codes it answers questions for offsets with."""

    consumer: aio.Consumer[Any, Any]

    def __init__(self, broker: ScriptedBroker) -> None:
        self.broker = broker
        self.codes: list[int] = []
        self.epoch = 3
        self.topics = [leaders((1, 3), (1, 3))]
        self.epoch_codes: list[int] = []
        self.epoch_end = (3, 50)
        self.newest_epoch_version = 4
        broker.on(MetadataRequest, lambda _: broker.metadata(topics=self.topics))
        broker.on(ListOffsetsRequest, self._offsets)
        broker.on(OffsetForLeaderEpochRequest, self._epoch_ends)
        broker.on(FetchRequest, self._nothing)
        broker.on(ApiVersionsRequest, self._versions)

    def _versions(self, _: object) -> ApiVersionsResponse:
        keys = []
        for key in (3, 18, *self.broker.answers):
            spoken = request_class(key).VERSIONS
            newest = self.newest_epoch_version if key == OffsetForLeaderEpochRequest.API_KEY else spoken.stop - 1
            keys.append(ApiVersion(api_key=key, min_version=spoken.start, max_version=newest))
        return ApiVersionsResponse(api_keys=keys)

    def _offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        answers = []
        for asked in request.topics[0].partitions:
            code = self.codes.pop(0) if self.codes else 0
            offset = -1 if code else ENDS.get(asked.timestamp, -1 if asked.timestamp > 1000 else 40)
            answers.append(
                ListOffsetsPartitionResponse(
                    partition_index=asked.partition_index, error_code=code, offset=offset, timestamp=77, leader_epoch=3
                )
            )
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=answers)])

    def _epoch_ends(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        code = self.epoch_codes.pop(0) if self.epoch_codes else 0
        epoch, end_offset = self.epoch_end
        ends = [
            EpochEndOffset(partition=asked.partition, error_code=code, leader_epoch=epoch, end_offset=end_offset)
            for asked in request.topics[0].partitions
        ]
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic=TOPIC, partitions=ends)])

    async def _nothing(self, _: object) -> FetchResponse:
        await asyncio.sleep(0.02)
        return FetchResponse()

    @property
    def questions(self) -> int:
        return len(self.broker.asked(ListOffsetsRequest))

    @property
    def checks(self) -> int:
        return len(self.broker.asked(OffsetForLeaderEpochRequest))


@asynccontextmanager
async def world(reset: str = "earliest", *, prepare: Any = None, **settings: object) -> AsyncIterator[World]:
    async with ScriptedBroker() as broker:
        here = World(broker)
        if prepare is not None:
            prepare(here)
        own = {"retry.backoff.ms": 1, "auto.offset.reset": reset, "bootstrap.servers": broker.address}
        async with aio.Consumer({**own, **settings}) as here.consumer:
            yield here


@pytest.mark.parametrize(("reset", "position"), [("earliest", 3), ("latest", 90)])
def test_who_has_committed_nothing_begins_where_the_settings_say(reset: str, position: int) -> None:
    async def scenario() -> None:
        async with world(reset) as here:
            here.consumer.assign([FIRST])
            assert await here.consumer.position(FIRST, timeout=PATIENCE_S) == position
            (asked,) = here.broker.asked(ListOffsetsRequest)
            assert asked.isolation_level == 0 and asked.replica_id == -1
        async with world("none") as here:
            here.consumer.assign([FIRST])
            with pytest.raises(NoOffsetError):
                await here.consumer.position(FIRST, timeout=PATIENCE_S)
            assert here.questions == 0

    run_async(scenario())


@pytest.mark.parametrize(
    "codes",
    [
        [E.NOT_LEADER_OR_FOLLOWER],
        [E.LEADER_NOT_AVAILABLE, E.NETWORK_EXCEPTION],
        [E.FENCED_LEADER_EPOCH],
        [E.UNKNOWN_LEADER_EPOCH],
        [E.OFFSET_NOT_AVAILABLE],
        [E.REQUEST_TIMED_OUT],
    ],
)
def test_what_passes_is_asked_again(codes: list[ErrorCode]) -> None:
    async def scenario() -> None:
        async with world() as here:
            here.codes = list(codes)
            here.consumer.assign([FIRST])
            assert await here.consumer.position(FIRST, timeout=PATIENCE_S) == 3
            assert here.questions == len(codes) + 1
            here.codes = list(codes)
            assert await here.consumer.end_offsets([FIRST], timeout=PATIENCE_S) == {FIRST: 90}
            assert here.questions == 2 * (len(codes) + 1)

    run_async(scenario())


def test_what_does_not_pass_is_told_with_its_partition() -> None:
    async def scenario() -> None:
        async with world() as here:
            here.codes = [E.TOPIC_AUTHORIZATION_FAILED]
            with pytest.raises(ClientError, match=str(FIRST)) as refusal:
                await here.consumer.beginning_offsets([FIRST], timeout=PATIENCE_S)
            assert (refusal.value.code, here.questions) == (E.TOPIC_AUTHORIZATION_FAILED, 1)
            here.codes = [E.TOPIC_AUTHORIZATION_FAILED] * 1000
            here.consumer.assign([FIRST])
            with pytest.raises(ClientError) as refusal:
                await here.consumer.position(FIRST, timeout=PATIENCE_S)
            assert refusal.value.code is E.TOPIC_AUTHORIZATION_FAILED

    run_async(scenario())


def test_of_several_partitions_only_those_without_an_answer_are_asked_about_again() -> None:
    async def scenario() -> None:
        async with world() as here:
            here.codes = [E.NONE, E.OFFSET_NOT_AVAILABLE]
            ends = await here.consumer.end_offsets([FIRST, SECOND], timeout=PATIENCE_S)
            assert ends == {FIRST: 90, SECOND: 90}
            asked = [
                [one.partition_index for one in one.topics[0].partitions]
                for one in here.broker.asked(ListOffsetsRequest)
            ]
            assert asked[0] == [0, 1] and asked[-1] == [1]
            times = await here.consumer.offsets_for_times({FIRST: 500, SECOND: 5000}, timeout=PATIENCE_S)
            assert times == {FIRST: OffsetAndTimestamp(40, 77, 3), SECOND: None}
            first = await here.consumer.offsets_for_times({FIRST: 0}, timeout=PATIENCE_S)
            assert first == {FIRST: OffsetAndTimestamp(0, 77, 3)}, "the very first record is one, too"
            await here.consumer.offsets_for_times({FIRST: 500, SECOND: 5000}, timeout=PATIENCE_S)
            last = here.broker.asked(ListOffsetsRequest)[-1]
            assert [(one.timestamp, one.current_leader_epoch) for one in last.topics[0].partitions] == [
                (500, -1),
                (5000, -1),
            ]

    run_async(scenario())


@pytest.mark.parametrize(("isolation", "level"), [("read_uncommitted", 0), ("read_committed", 1)])
def test_the_end_depends_on_what_may_be_read(isolation: str, level: int) -> None:
    async def scenario() -> None:
        async with world(**{"isolation.level": isolation}) as here:
            await here.consumer.end_offsets([FIRST], timeout=PATIENCE_S)
            assert here.broker.asked(ListOffsetsRequest)[-1].isolation_level == level

    run_async(scenario())


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (MetadataResponseTopic(name=TOPIC, error_code=E.TOPIC_AUTHORIZATION_FAILED), E.TOPIC_AUTHORIZATION_FAILED),
        (MetadataResponseTopic(name=TOPIC, error_code=E.UNKNOWN_TOPIC_OR_PARTITION), E.UNKNOWN_TOPIC_OR_PARTITION),
        (leaders((1, 3)), E.UNKNOWN_TOPIC_OR_PARTITION),
        (leaders((1, 3), (-1, 3)), E.LEADER_NOT_AVAILABLE),
    ],
)
def test_why_a_partition_has_nobody_to_ask(topic: MetadataResponseTopic, code: ErrorCode) -> None:
    async def scenario() -> None:
        def prepare(here: World) -> None:
            here.topics = [topic]

        async with world(prepare=prepare, **{"retry.backoff.ms": 30}) as here:
            with pytest.raises(ClientError) as refusal:
                await here.consumer.end_offsets([SECOND], timeout=0.3)
            assert refusal.value.code is code or "last: " in str(refusal.value)
            if code is E.TOPIC_AUTHORIZATION_FAILED:
                assert refusal.value.code is code
            assert here.questions == 0

    run_async(scenario())


def test_who_waits_too_long_is_told_what_was_waited_for() -> None:
    async def scenario() -> None:
        async with world() as here:
            here.broker.on(ListOffsetsRequest, never)
            here.consumer.assign([FIRST])
            with pytest.raises(ClientError, match=f"the position in {FIRST} was not found within 100 ms") as late:
                await here.consumer.position(FIRST, timeout=0.1)
            assert late.value.code is E.REQUEST_TIMED_OUT
            with pytest.raises(ClientError, match="did not answer within 100 ms") as late:
                await here.consumer.end_offsets([FIRST], timeout=0.1)
            assert late.value.code is E.REQUEST_TIMED_OUT

    run_async(scenario())


# What a new leader says (KIP-320)


async def validated(here: World) -> None:
    await until(lambda: bool(here.broker.asked(FetchRequest)))


def test_a_leader_that_agrees_is_read_from() -> None:
    async def scenario() -> None:
        async with world() as here:
            here.epoch_codes = [E.NOT_LEADER_OR_FOLLOWER, E.FENCED_LEADER_EPOCH]
            here.consumer.assign([FIRST])
            here.consumer.seek(FIRST, 20, leader_epoch=2)
            await validated(here)
            assert here.checks == 3 and here.questions == 0
            (asked,) = here.broker.asked(OffsetForLeaderEpochRequest)[-1].topics[0].partitions
            assert (asked.partition, asked.leader_epoch, asked.current_leader_epoch) == (0, 2, 3)
            fetched = here.broker.asked(FetchRequest)[0].topics[0].partitions[0]
            assert (fetched.fetch_offset, fetched.current_leader_epoch) == (20, 3)

    run_async(scenario())


@pytest.mark.parametrize(
    ("reset", "epoch_end", "position"),
    [
        ("earliest", (2, 15), 15),
        ("earliest", (2, 20), 20),
        ("earliest", (-1, -1), 3),
        ("latest", (-1, -1), 90),
        ("none", (2, 15), None),
        ("none", (-1, -1), None),
    ],
)
def test_a_log_that_was_cut_is_read_from_where_it_agrees(
    reset: str, epoch_end: tuple[int, int], position: int | None
) -> None:
    async def scenario() -> None:
        async with world(reset) as here:
            here.epoch_end = epoch_end
            here.consumer.assign([FIRST])
            here.consumer.seek(FIRST, 20, leader_epoch=2)
            if position is not None:
                await validated(here)
                assert await here.consumer.position(FIRST, timeout=PATIENCE_S) == position
                return
            with pytest.raises(LogTruncationError) as cut:
                while True:
                    await here.consumer.poll(0.05)
            assert cut.value.topic_partition == FIRST
            assert cut.value.offset == (15 if epoch_end[0] >= 0 else -1)

    run_async(scenario())


@pytest.mark.parametrize(("newest", "checks"), [(2, 0), (3, 1)])
def test_brokers_that_answer_only_each_other_are_believed(newest: int, checks: int) -> None:
    """Consumers may ask from version 3 on."""

    async def scenario() -> None:
        def prepare(here: World) -> None:
            here.newest_epoch_version = newest

        async with world(prepare=prepare) as here:
            here.consumer.assign([FIRST])
            here.consumer.seek(FIRST, 20, leader_epoch=2)
            await validated(here)
            assert here.checks == checks

    run_async(scenario())


def test_who_seeks_meanwhile_does_not_get_the_old_answer() -> None:
    async def scenario() -> None:
        may_answer = asyncio.Event()
        async with world() as here:
            answer = here._offsets

            async def late(request: ListOffsetsRequest) -> ListOffsetsResponse:
                await may_answer.wait()
                return answer(request)

            here.broker.on(ListOffsetsRequest, late)
            here.consumer.assign([FIRST])
            await until(lambda: here.questions > 0)
            here.consumer.seek(FIRST, 33)
            may_answer.set()
            await validated(here)
            assert await here.consumer.position(FIRST, timeout=PATIENCE_S) == 33
            assert here.broker.asked(FetchRequest)[0].topics[0].partitions[0].fetch_offset == 33

    run_async(scenario())


def test_topics_have_the_ids_that_fetches_name() -> None:
    async def scenario() -> None:
        async with world() as here:
            here.consumer.assign([FIRST, TopicPartition(TOPIC, 1)])
            await validated(here)
            (topic,) = here.broker.asked(FetchRequest)[0].topics
            assert topic.topic_id == TOPIC_ID

    run_async(scenario())
