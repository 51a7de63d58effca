"""A follower's fetchers and a leader that a test plays: what is asked, what becomes of the answers, and who waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError, OttlaError
from ottla.base.types import TopicPartition, Uuid
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.partition import Partition
from ottla.broker.replication.fetchers import ReplicaFetchers, _fetcher_number
from ottla.broker.replication.throttles import ReplicationThrottle
from ottla.records.builder import NewRecord, build_batch
from ottla.wire.api_keys import ApiKey
from ottla.wire.apis.fetch import EpochEndOffset, FetchablePartitionResponse, FetchableTopicResponse, FetchRequest
from ottla.wire.apis.fetch import FetchResponse as Response
from ottla.wire.apis.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from ottla.wire.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.header import encode_response_frame, read_request_header
from tests.unit.broker.replica_world import BROKER, TOPIC_ID, ReplicaWorld, in_world
from tests.waiting import until

LEADER = 2
VERSION = 17


# By the hash codes of Java: "a" is 97, "events" is -1291329255, "__consumer_offsets" is -970371369.
@pytest.mark.parametrize(
    ("topic", "partition", "count", "number"),
    [
        ("a", 0, 4, 31 * 97 % 4),
        ("a", 1, 4, (31 * 97 + 1) % 4),
        ("events", 0, 1000, 31 * 1291329255 % 1000),
        ("events", 2, 1000, (31 * 1291329255 - 2) % 1000),
        ("__consumer_offsets", 49, 1000, (31 * 970371369 - 49) % 1000),
        ("events", 7, 1, 0),
    ],
)
def test_which_fetcher_follows_a_partition(topic: str, partition: int, count: int, number: int) -> None:
    assert _fetcher_number(TopicPartition(topic, partition), count) == number


class Leader:
    """The other end of a connection: requests arrive here, and a test answers them."""

    client_id = "follower"

    def __init__(self) -> None:
        self.requests: list[FetchRequest] = []
        self.timeout_ms = 0
        self.is_writable = True
        self._receive: Callable[[memoryview | OttlaError], None] | None = None

    def version_for(self, request: object) -> int:
        return VERSION

    def begin(
        self, encode: Callable[[int], bytes], receive: Callable[[Any], None], *, api_key: ApiKey, timeout_ms: int
    ) -> None:
        frame = b"".join(encoded) if not isinstance(encoded := encode(1), bytes) else encoded
        header = read_request_header(frame[4:])
        assert header.api_key == api_key == ApiKey.FETCH
        self.requests.append(FetchRequest.decode(frame[4:], header.api_version, header.body_position)[0])
        self.timeout_ms = timeout_ms
        self._receive = receive

    def close(self) -> None:
        self.is_writable = False

    def answer(self, *partitions: FetchablePartitionResponse, topic_id: Uuid = TOPIC_ID, **fields: Any) -> None:
        topics = (
            [FetchableTopicResponse(topic="t", topic_id=topic_id, partitions=list(partitions))] if partitions else []
        )
        response = Response(session_id=5, responses=topics, **fields)
        self.receive(memoryview(bytes(encode_response_frame(response, VERSION, 1)))[4:])

    def receive(self, frame: memoryview | OttlaError) -> None:
        receive, self._receive = self._receive, None
        assert receive is not None, "nothing was asked"
        receive(frame)

    def asked(self) -> dict[int, int]:
        """By partition of the last request, from which offset on."""
        return {p.partition: p.fetch_offset for topic in self.requests[-1].topics for p in topic.partitions}

    def forgotten(self) -> list[int]:
        return [partition for topic in self.requests[-1].forgotten_topics_data for partition in topic.partitions]


class Follower:
    """Fetchers of a broker whose leaders are `Leader`s, one per connection."""

    def __init__(self, world: ReplicaWorld, settings: dict[str, str], throttled: str) -> None:
        self.world = world
        self.config = BrokerConfig({"replica.fetch.backoff.ms": "40", **settings})
        self.connections: list[tuple[str, Leader]] = []
        self._roles_given = asyncio.Event()
        self.offsets = {-2: 0, -1: 0}
        """What the leader says when it is asked where its log begins (-2) and ends."""
        self.asked_offsets: list[ListOffsetsRequest] = []
        self.fetchers = ReplicaFetchers(
            BROKER,
            SimpleNamespace(connection=self._connection, request=self._request),  # type: ignore[arg-type]
            world.replicas,
            world.clock,
            lambda: self.config,
            lambda: 77,
            throttle=ReplicationThrottle(
                "follower",
                BROKER,
                lambda: self.config,
                lambda topic: {"follower.replication.throttled.replicas": throttled},
                world.clock,
            ),
        )
        world.replicas.following = self.fetchers

    async def _connection(self, source: int, work: str, *, receive_buffer_bytes: int) -> Leader:
        assert source == LEADER
        await self._roles_given.wait()
        for name, known in self.connections:
            if name == work and known.is_writable:
                return known
        made = Leader()
        self.connections.append((work, made))
        return made

    async def _request(self, source: int, request: ListOffsetsRequest, *_: object, **__: object) -> ListOffsetsResponse:
        self.asked_offsets.append(request)
        (topic,) = request.topics
        (asked,) = topic.partitions
        answer = ListOffsetsPartitionResponse(
            partition_index=asked.partition_index, offset=self.offsets[asked.timestamp]
        )
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=topic.name, partitions=[answer])])

    async def follow(self, *indexes: int, leader: int = LEADER, epoch: int = 3, topic_id: Uuid = TOPIC_ID) -> None:
        states = [
            LeaderAndIsrPartitionState(
                partition_index=index, leader=leader, leader_epoch=epoch, isr=[leader], replicas=[LEADER, BROKER]
            )
            for index in indexes
        ]
        topic = LeaderAndIsrTopicState(topic_name="t", topic_id=topic_id, partition_states=states)
        outcome = await self.world.replicas.apply_leader_and_isr(LeaderAndIsrRequest(topic_states=[topic]))
        assert set(outcome.values()) == {ErrorCode.NONE}
        self._roles_given.set()

    def partition(self, index: int = 0) -> Partition:
        found = self.world.replicas.find("t", index)
        assert found is not None
        return found

    async def leader(self, *, connections: int = 1, requests: int = 1) -> Leader:
        """Of the last connection, when there are so many, and so much was asked there."""
        await until(lambda: len(self.connections) >= connections and len(self.connections[-1][1].requests) >= requests)
        return self.connections[-1][1]


def data(first_offset: int, count: int = 1, epoch: int = 3) -> bytes:
    """A batch as the leader has it."""
    batch = bytearray(build_batch([NewRecord(b"k", b"v" * 100, (), 1000)] * count))
    batch[:8] = first_offset.to_bytes(8, "big")
    batch[12:16] = epoch.to_bytes(4, "big")
    return bytes(batch)


def answer(index: int = 0, records: bytes = b"", high_watermark: int = 0, **fields: Any) -> FetchablePartitionResponse:
    return FetchablePartitionResponse(
        partition_index=index, high_watermark=high_watermark, log_start_offset=0, records=records, **fields
    )


def following(
    tmp_path: Path,
    scenario: Callable[[Follower], Awaitable[None]],
    *,
    settings: dict[str, str] | None = None,
    throttled: str = "",
) -> None:
    async def run(world: ReplicaWorld) -> None:
        follower = Follower(world, settings or {}, throttled)
        try:
            await scenario(follower)
        finally:
            await follower.fetchers.stop()

    in_world(tmp_path, run)


def test_what_the_leader_has_is_stored_and_the_next_request_says_so(tmp_path: Path) -> None:
    async def scenario(follower: Follower) -> None:
        await follower.follow(0, 1)
        leader = await follower.leader()
        assert leader.asked() == {0: 0, 1: 0} and leader.requests[0].session_epoch == 0
        leader.answer(answer(0, data(0, 3), high_watermark=2), answer(1))
        log = follower.partition().log
        assert (log.log_end_offset, log.high_watermark, log.epochs.latest_epoch) == (3, 2, 3)
        assert len(leader.requests) == 2, "at once"
        assert leader.asked()[0] == 3 and leader.requests[1].session_epoch == 1
        leader.answer(answer(0, high_watermark=3))
        assert log.high_watermark == 3
        assert leader.asked() == {}, "nothing has changed"

    following(tmp_path, scenario)


def test_a_request_says_who_asks_and_how_much_may_come(tmp_path: Path) -> None:
    settings = {
        "replica.fetch.wait.max.ms": "123",
        "replica.fetch.min.bytes": "7",
        "replica.fetch.max.bytes": "1000",
        "replica.fetch.response.max.bytes": "5000",
        "replica.socket.timeout.ms": "4000",
    }

    async def scenario(follower: Follower) -> None:
        await follower.follow(0)
        leader = await follower.leader()
        (request,) = leader.requests
        assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (BROKER, 77)
        assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (123, 7, 5000)
        assert leader.timeout_ms == 4123
        (asked,) = request.topics[0].partitions
        assert (asked.partition_max_bytes, asked.current_leader_epoch, asked.last_fetched_epoch) == (1000, 3, -1)

    following(tmp_path, scenario, settings=settings)


def test_an_answer_about_a_partition_that_is_not_followed_any_more_changes_nothing(tmp_path: Path) -> None:
    async def scenario(follower: Follower) -> None:
        await follower.follow(0, 1)
        leader = await follower.leader()
        follower.fetchers.forget(TopicPartition("t", 0))
        leader.answer(answer(0, data(0)), answer(1, data(0)))
        assert follower.partition(0).log.log_end_offset == 0
        assert follower.partition(1).log.log_end_offset == 1
        assert leader.forgotten() == [0] and leader.asked() == {1: 1}

    following(tmp_path, scenario)


def test_an_answer_about_a_topic_of_another_id_changes_nothing(tmp_path: Path) -> None:
    async def scenario(follower: Follower) -> None:
        await follower.follow(0)
        leader = await follower.leader()
        leader.answer(answer(0, data(0)), topic_id=Uuid(bytes(16)[:15] + b"\1"))
        assert follower.partition().log.log_end_offset == 0

    following(tmp_path, scenario)


def test_a_new_leader_epoch_is_told_to_the_leader(tmp_path: Path) -> None:
    async def scenario(follower: Follower) -> None:
        await follower.follow(0)
        leader = await follower.leader()
        await follower.follow(0, epoch=4)
        leader.answer()
        (asked,) = leader.requests[-1].topics[0].partitions
        assert asked.current_leader_epoch == 4
        assert len(follower.connections) == 1

    following(tmp_path, scenario)


@pytest.mark.parametrize("is_forgotten", [True, False])
def test_who_follows_nothing_hangs_up(tmp_path: Path, is_forgotten: bool) -> None:
    """Also if nobody leads any more."""

    async def scenario(follower: Follower) -> None:
        await follower.follow(0)
        leader = await follower.leader()
        if is_forgotten:
            follower.fetchers.forget(TopicPartition("t", 0))
        else:
            await follower.follow(0, leader=-1, epoch=4)
        assert not leader.is_writable
        leader.answer(answer(0, data(0)))
        assert follower.partition().log.log_end_offset == 0 and len(leader.requests) == 1
        await follower.follow(0, epoch=5)
        assert (await follower.leader(connections=2)).asked() == {0: 0}

    following(tmp_path, scenario)


def test_a_partition_that_fails_waits_by_itself_and_longer_each_time(tmp_path: Path) -> None:
    async def scenario(follower: Follower) -> None:
        clock = follower.world.clock
        await follower.follow(0, 1)
        leader = await follower.leader()
        leader.answer(answer(0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER), answer(1, data(0)))
        assert leader.forgotten() == [0] and leader.asked() == {1: 1}
        clock.advance(19)
        leader.answer()
        assert leader.asked() == {}
        clock.advance(1)
        leader.answer()
        assert leader.asked() == {0: 0}
        leader.answer(answer(0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        clock.advance(39)
        leader.answer()
        assert leader.asked() == {}, "twice as long"
        clock.advance(1)
        leader.answer()
        leader.answer(answer(0, data(0)))
        leader.answer(answer(0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        clock.advance(20)
        leader.answer()
        assert leader.asked() == {0: 1}, "all is well in between, and it begins anew"

    following(tmp_path, scenario)


def test_a_partition_that_waited_is_fetched_at_once_in_its_next_role(tmp_path: Path) -> None:
    async def scenario(follower: Follower) -> None:
        await follower.follow(0, 1)
        leader = await follower.leader()
        leader.answer(answer(0, error_code=ErrorCode.FENCED_LEADER_EPOCH))
        assert leader.forgotten() == [0]
        await follower.follow(0, epoch=4)
        leader.answer()
        assert leader.asked()[0] == 0

    following(tmp_path, scenario)


def test_when_all_wait_nothing_is_asked_until_one_may_go_on(tmp_path: Path) -> None:
    async def scenario(follower: Follower) -> None:
        await follower.follow(0)
        leader = await follower.leader()
        leader.answer(answer(0, error_code=ErrorCode.UNKNOWN_TOPIC_ID))
        await asyncio.sleep(0.05)
        assert len(leader.requests) == 1
        follower.world.clock.advance(20)
        await follower.leader(requests=2)
        leader.answer(answer(0, data(0)))
        assert follower.partition().log.log_end_offset == 1

    following(tmp_path, scenario)


def test_a_log_that_went_another_way_is_cut(tmp_path: Path) -> None:
    async def scenario(follower: Follower) -> None:
        await follower.follow(0)
        leader = await follower.leader()
        leader.answer(answer(0, data(0, 2, epoch=1) + data(2, 3, epoch=2)))
        leader.answer(answer(0, diverging_epoch=EpochEndOffset(epoch=2, end_offset=4)))
        assert follower.partition().log.log_end_offset == 2, "a batch is cut as a whole"
        assert leader.asked() == {0: 2}

    following(tmp_path, scenario)


def test_a_leader_that_has_lost_its_beginning_is_asked_where_it_begins(tmp_path: Path) -> None:
    async def scenario(follower: Follower) -> None:
        follower.offsets = {-2: 40, -1: 50}
        await follower.follow(0)
        leader = await follower.leader()
        leader.answer(answer(0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE))
        await follower.leader(requests=2)
        assert leader.asked() == {0: 40}
        log = follower.partition().log
        assert (log.log_start_offset, log.log_end_offset) == (40, 40)
        assert {request.replica_id for request in follower.asked_offsets} == {BROKER}

    following(tmp_path, scenario)


@pytest.mark.parametrize("is_lost", [True, False])
def test_after_a_lost_connection_everything_is_asked_anew(tmp_path: Path, is_lost: bool) -> None:
    """Whether a request was under way or could not be sent."""

    async def scenario(follower: Follower) -> None:
        await follower.follow(0, 1)
        leader = await follower.leader()
        leader.answer(answer(0, data(0)))
        leader.is_writable = False
        if is_lost:
            leader.receive(KafkaError("gone", code=ErrorCode.NETWORK_EXCEPTION))
        else:
            leader.answer()
        after = await follower.leader(connections=2)
        assert after.asked() == {0: 1, 1: 0}
        assert after.requests[0].session_epoch == 0

    following(tmp_path, scenario)


def test_a_leader_that_does_not_know_the_session_is_asked_for_everything(tmp_path: Path) -> None:
    async def scenario(follower: Follower) -> None:
        await follower.follow(0, 1)
        leader = await follower.leader()
        leader.answer(answer(0), answer(1))
        leader.answer(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        assert leader.requests[-1].session_epoch == 0 and leader.asked() == {0: 0, 1: 0}
        assert len(follower.connections) == 1

    following(tmp_path, scenario)


@pytest.mark.parametrize(("throttled", "high_watermark", "waits"), [("*", 9, True), ("*", 0, False), ("1:1", 9, False)])
def test_who_catches_up_under_a_throttle_is_held_back(
    tmp_path: Path, throttled: str, high_watermark: int, waits: bool
) -> None:
    async def scenario(follower: Follower) -> None:
        await follower.follow(0, 1)
        leader = await follower.leader()
        leader.answer(answer(0, data(0), high_watermark=high_watermark))
        assert follower.partition().log.log_end_offset == 1
        assert leader.forgotten() == ([0] if waits else [])
        wait_ms = leader.requests[-1].max_wait_ms
        assert (wait_ms < 500) == waits, "others must not make it wait longer than it has to"
        if waits:
            follower.world.clock.advance(wait_ms)
            leader.answer()
            assert leader.asked() == {0: 1} and leader.requests[-1].max_wait_ms == 500

    following(tmp_path, scenario, settings={"follower.replication.throttled.rate": "400"}, throttled=throttled)


def test_partitions_are_spread_over_connections_and_spread_anew(tmp_path: Path) -> None:
    async def scenario(follower: Follower) -> None:
        await follower.follow(0, 1)
        await until(lambda: len(follower.connections) == 2 and all(c.requests for _, c in follower.connections))
        leaders = dict(follower.connections)
        assert sorted(leaders) == ["fetch-0", "fetch-1"]
        assert [len(leader.asked()) for leader in leaders.values()] == [1, 1]
        follower.fetchers.reconfigured()
        assert len(follower.connections) == 2, "nothing was changed"
        follower.config = BrokerConfig({"num.replica.fetchers": "1"})
        follower.fetchers.reconfigured()
        leaders["fetch-0"].answer()
        assert leaders["fetch-0"].asked().keys() and not leaders["fetch-1"].is_writable
        assert leaders["fetch-0"].is_writable and len(follower.connections) == 2

    following(tmp_path, scenario, settings={"num.replica.fetchers": "2"})


def test_a_new_partition_does_not_wait_for_one_that_is_held_back(tmp_path: Path) -> None:
    """For longer than any test has patience."""

    async def scenario(follower: Follower) -> None:
        await follower.follow(0)
        leader = await follower.leader()
        leader.answer(answer(0, data(0), high_watermark=9))
        await asyncio.sleep(0.01)
        assert len(leader.requests) == 1
        await follower.follow(1)
        await follower.leader(requests=2)
        assert leader.asked() == {1: 0} and leader.forgotten() == [0]

    following(tmp_path, scenario, settings={"follower.replication.throttled.rate": "1"}, throttled="*")


def test_what_was_held_back_shortens_no_request_after_its_next_role(tmp_path: Path) -> None:
    async def scenario(follower: Follower) -> None:
        await follower.follow(0, 1)
        leader = await follower.leader()
        leader.answer(answer(0, data(0), high_watermark=9))
        assert leader.requests[-1].max_wait_ms < 500
        await follower.follow(0, epoch=4)
        leader.answer()
        assert leader.requests[-1].max_wait_ms == 500 and leader.asked() == {0: 1}

    following(tmp_path, scenario, settings={"follower.replication.throttled.rate": "400"}, throttled="*")
