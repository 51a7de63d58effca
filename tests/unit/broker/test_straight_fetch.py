"""The short way of a fetch gives what the long way gives, for every request that it does not leave to it."""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.ids import Ids
from ottla.base.types import Uuid
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.handler import RequestContext
from ottla.broker.node import Broker
from ottla.broker.startup import start_broker
from ottla.broker.straight_fetch import StraightFetch
from ottla.log.partition_log import Origin
from ottla.machines.cluster.topics import NewTopic
from ottla.machines.fetch_session import FetchSessions
from ottla.net.service import Deferred
from ottla.records.builder import NewRecord, build_batch
from ottla.records.control import end_transaction_marker
from ottla.wire.apis.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from ottla.wire.header import encode_request_frame, read_request_header, read_response_header, skim_request_header
from tests.unit.broker.local_connection import connected

NOW_MS = 1_700_000_000_000
TOPIC = "events"
OTHER_ID = Uuid(bytes(range(16)))
BATCHES = 12


@dataclass
class Running:
    broker: Broker
    loop: asyncio.AbstractEventLoop

    @property
    def topic_id(self) -> Uuid:
        return self.broker.replicas.led(TOPIC, 0).topic_id

    def both_ways(self, frame: memoryview) -> tuple[Any, Any]:
        """The replies by the short and by the long way."""

        async def run() -> tuple[Any, Any]:
            # Read before it is skimmed: a header of a kind that was never read cannot be skimmed.
            api_key, version, correlation_id, client_id, position = read_request_header(frame)
            _, _, _, body = skim_request_header(frame)
            connection = connected(self.broker)
            straight = None
            if body:
                straight = StraightFetch(self.broker).reply(connection, version, correlation_id, frame, body)
            context = RequestContext(
                self.broker, connection, api_key, version, correlation_id, client_id, frame, position
            )
            outcome = self.broker.handlers[api_key].handle(context)
            if isinstance(outcome, Deferred):
                outcome.abandon()
            return straight, outcome

        return self.loop.run_until_complete(run())


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A topic of several segments, with a transaction that was aborted, one that was not, and one that is open."""
    loop = asyncio.new_event_loop()
    directory = tmp_path_factory.mktemp("broker") / "data"
    config = BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory)})

    async def started_and_filled() -> Broker:
        broker = await start_broker(config)
        await broker.topic_admin.create(NewTopic(TOPIC, 1, 1, configs={"segment.bytes": "1000"}))
        partition = broker.replicas.led(TOPIC, 0)

        def append(data: bytes, origin: Origin = Origin.CLIENT) -> None:
            records = memoryview(bytearray(data))
            broker.replicas.append(partition, records, requires_all_replicas=False, now_ms=NOW_MS, origin=origin)

        for number in range(BATCHES):
            append(build_batch([NewRecord(None, b"v" * 200, (), NOW_MS)] * (number % 3 + 1)))
        for producer_id, commits in ((1, False), (2, True), (3, None)):
            of_producer: Any = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
            append(build_batch([NewRecord(None, b"t", (), NOW_MS)], transactional=True, **of_producer))
            if commits is not None:
                append(end_transaction_marker(producer_id, 0, commits, 0, NOW_MS), Origin.COORDINATOR)
        append(build_batch([NewRecord(None, b"last", (), NOW_MS)]))
        return broker

    broker = loop.run_until_complete(started_and_filled())
    yield Running(broker, loop)
    loop.run_until_complete(broker.stop())
    loop.close()


def request_frame(version: int, topics: list[FetchTopic], **fields: Any) -> memoryview:
    request = FetchRequest(topics=topics, **fields)
    return memoryview(bytearray(encode_request_frame(request, version, 77, "test")[4:]))


def topic_of(
    running: Running, *partitions: FetchPartition, name: str = TOPIC, topic_id: Uuid | None = None
) -> FetchTopic:
    return FetchTopic(topic=name, topic_id=topic_id or running.topic_id, partitions=list(partitions))


_ordinary_partition = st.builds(
    FetchPartition,
    partition=st.just(0),
    fetch_offset=st.integers(0, 30),
    partition_max_bytes=st.sampled_from([1_000_000, 700, 10, 0, -1]),
)
_ordinary_fields = st.fixed_dictionaries(
    {
        "max_wait_ms": st.sampled_from([0, 500]),
        "min_bytes": st.sampled_from([0, 1, 600, 100_000]),
        "max_bytes": st.sampled_from([50_000_000, 300, -1]),
        "isolation_level": st.sampled_from([0, 1, 2]),
    }
)
_Change = tuple[str, dict[str, Any]]
_unusual: list[_Change] = [
    *(("partition", {"current_leader_epoch": epoch}) for epoch in range(4)),
    ("partition", {"partition": 1}),
    *(("partition", {"last_fetched_epoch": epoch}) for epoch in range(-2, 3)),
    ("partition", {"fetch_offset": -1}),
    ("partition", {"fetch_offset": 60}),
    ("topic", {"name": "nobody"}),
    ("topic", {"name": ""}),
    ("topic", {"topic_id": OTHER_ID}),
    ("request", {"session_id": 5}),
    ("request", {"session_epoch": 3}),
    ("request", {"session_id": 5, "session_epoch": 3}),
    ("request", {"rack_id": "r"}),
    ("request", {"forgotten_topics_data": [ForgottenTopic(topic=TOPIC, partitions=[0])]}),
    ("request", {"replica_id": 7}),
    ("request", {"replica_state": ReplicaState(replica_id=7)}),
    ("count", {"topics": 0}),
    ("count", {"topics": 2}),
    ("count", {"partitions": 0}),
    ("count", {"partitions": 2}),
]
_FIRST_VERSION_OF = {"last_fetched_epoch": 12, "replica_state": 15}
_LAST_VERSION_OF = {"replica_id": 14}


@settings(max_examples=400, deadline=None)
@given(
    version=st.integers(10, 17),
    partition=_ordinary_partition,
    fields=_ordinary_fields,
    change=st.one_of(st.none(), st.sampled_from(_unusual)),
)
def test_both_ways_are_the_same(
    running: Running, version: int, partition: FetchPartition, fields: dict[str, Any], change: _Change | None
) -> None:
    of_what, changes = change or ("", {})
    changes = {
        name: value
        for name, value in changes.items()
        if _FIRST_VERSION_OF.get(name, 0) <= version <= _LAST_VERSION_OF.get(name, 17)
    }
    if of_what == "partition":
        for name, value in changes.items():
            setattr(partition, name, value)
    counts = {"topics": 1, "partitions": 1} | (changes if of_what == "count" else {})
    topic = topic_of(running, *[partition] * counts["partitions"], **(changes if of_what == "topic" else {}))
    fields = fields | (changes if of_what == "request" else {})
    straight, long = running.both_ways(request_frame(version, [topic] * counts["topics"], **fields))
    if straight is not None:
        assert straight == long


@pytest.mark.parametrize("version", range(11, 18))
@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("offset", [0, 5, 24])
def test_an_ordinary_request_goes_the_short_way(
    running: Running, version: int, isolation_level: int, offset: int
) -> None:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)
    topic = topic_of(running, wanted)
    frame = request_frame(version, [topic], max_wait_ms=500, min_bytes=1, isolation_level=isolation_level)
    straight, long = running.both_ways(frame)
    assert straight is not None
    assert straight == long


@pytest.mark.parametrize("version", range(11, 18))
def test_every_cut_request_is_left_to_the_long_way(running: Running, version: int) -> None:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
    frame = request_frame(version, [topic_of(running, wanted)], max_wait_ms=500, min_bytes=1)
    _, _, correlation_id, _, position = read_request_header(frame)
    straight = StraightFetch(running.broker)
    connection = connected(running.broker)
    assert straight.reply(connection, version, correlation_id, frame, position) is not None
    for end in range(position, len(frame)):
        assert straight.reply(connection, version, correlation_id, frame[:end], position) is None


@pytest.mark.parametrize(("max_wait_ms", "offset", "waits"), [(500, 29, True), (0, 29, False), (500, 0, False)])
def test_a_fetch_that_has_to_wait_goes_the_long_way(
    running: Running, max_wait_ms: int, offset: int, waits: bool
) -> None:
    """There is less than it wants; but where a later segment has more, or it cannot wait, it gets what there is."""
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)
    frame = request_frame(12, [topic_of(running, wanted)], max_wait_ms=max_wait_ms, min_bytes=100_000)
    straight, long = running.both_ways(frame)
    assert isinstance(long, Deferred) == waits
    assert (straight is None) == waits


# Sessions


def sessions_of(broker: Broker) -> list[Any]:
    """All that the broker remembers of its sessions, but the times."""
    return [
        (
            session.session_id,
            session.expected_epoch,
            session.uses_topic_ids,
            [
                (key, entry.asked, entry.high_watermark, entry.log_start_offset)
                for key, entry in session.entries.items()
            ],
        )
        for session in broker.fetch_sessions._sessions.values()
    ]


def both_ways_in_sessions(running: Running, frame: memoryview) -> tuple[Any, Any]:
    """Each way begins with the same sessions, and has to leave the same ones; the short way may leave all as it was."""
    broker = running.broker
    before, at_first = sessions_of(broker), broker.fetch_sessions
    api_key, version, correlation_id, client_id, position = read_request_header(frame)
    connection = connected(broker)

    async def run() -> tuple[Any, Any]:
        broker.fetch_sessions, broker.ids = copy.deepcopy(at_first), Ids(random.Random(5))
        short = StraightFetch(broker).reply(connection, version, correlation_id, frame, position)
        after_short = sessions_of(broker)
        broker.fetch_sessions, broker.ids = at_first, Ids(random.Random(5))
        context = RequestContext(broker, connection, api_key, version, correlation_id, client_id, frame, position)
        long = broker.handlers[api_key].handle(context)
        assert after_short == (before if short is None else sessions_of(broker))
        if isinstance(long, Deferred):
            assert short is None
            long.abandon()
        return short, long

    return running.loop.run_until_complete(run())


def session_id_in(version: int, reply: Any) -> int:
    data = b"".join(piece if isinstance(piece, bytes) else bytes(piece.length) for piece in reply)[4:]
    _, position = read_response_header(data, FetchRequest.API_KEY, version)
    return FetchResponse.decode(data, version, position)[0].session_id


_steps = st.lists(
    st.fixed_dictionaries(
        {
            "offsets": st.dictionaries(st.sampled_from([0, 0, 0, 1]), st.integers(0, 32), max_size=2),
            "epoch": st.sampled_from(["next", "next", "next", "next", "first", "last", "wrong"]),
            "forgets": st.sampled_from([False, False, False, True]),
            "isolation_level": st.sampled_from([0, 1]),
            "min_bytes": st.sampled_from([1, 600]),
            "max_wait_ms": st.sampled_from([0, 500]),
            "max_bytes": st.sampled_from([50_000_000, 700]),
        }
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=100, deadline=None)
@given(version=st.integers(11, 17), steps=_steps)
def test_both_ways_are_the_same_in_a_session(running: Running, version: int, steps: list[dict[str, Any]]) -> None:
    running.broker.fetch_sessions = FetchSessions(2)
    session_id, epoch = 0, 0
    for step in steps:
        fields = dict(step)
        asked = {"next": epoch, "first": 0, "last": -1, "wrong": epoch + 3}[fields.pop("epoch")]
        partitions = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1_000_000)
            for index, offset in fields.pop("offsets").items()
        ]
        forgotten = [ForgottenTopic(topic=TOPIC, topic_id=running.topic_id, partitions=[1])]
        frame = request_frame(
            version,
            [topic_of(running, *partitions)] if partitions else [],
            session_id=session_id,
            session_epoch=asked,
            forgotten_topics_data=forgotten if fields.pop("forgets") else [],
            **fields,
        )
        short, long = both_ways_in_sessions(running, frame)
        if short is not None:
            assert short == long
        if isinstance(long, Deferred):
            # Whether the request was taken is known to the session only.
            session_id, epoch = next(((s[0], s[1]) for s in sessions_of(running.broker)), (0, 0))
        else:
            session_id = session_id_in(version, long)
            epoch = max(asked, 0) + 1 if session_id else 0


@pytest.mark.parametrize("version", range(11, 18))
def test_a_consumer_with_a_session_goes_the_short_way(running: Running, version: int) -> None:
    """As Java's and our own clients ask: first for everything, then for what has changed, then for nothing new."""
    running.broker.fetch_sessions = FetchSessions(2)
    session_id = 0
    for epoch, offset in enumerate([0, 5, 9, None]):
        wanted = [FetchPartition(partition=0, fetch_offset=offset or 0, partition_max_bytes=1_000_000)]
        topics = [] if offset is None else [topic_of(running, *wanted)]
        frame = request_frame(version, topics, max_wait_ms=500, min_bytes=1, session_id=session_id, session_epoch=epoch)
        short, long = both_ways_in_sessions(running, frame)
        assert short is not None, epoch
        assert short == long
        session_id = session_id_in(version, long)
        assert session_id


@pytest.mark.parametrize("version", range(11, 18))
def test_every_cut_request_of_a_session_is_left_to_the_long_way(running: Running, version: int) -> None:
    running.broker.fetch_sessions = FetchSessions(2)
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
    first = request_frame(version, [topic_of(running, wanted)], max_wait_ms=500, min_bytes=1, session_epoch=0)
    session_id = session_id_in(version, both_ways_in_sessions(running, first)[1])
    frame = request_frame(version, [], max_wait_ms=500, min_bytes=1, session_id=session_id, session_epoch=1)
    _, _, correlation_id, _, position = read_request_header(frame)
    straight, connection = StraightFetch(running.broker), connected(running.broker)
    for end in range(position, len(frame)):
        assert straight.reply(connection, version, correlation_id, frame[:end], position) is None
    assert straight.reply(connection, version, correlation_id, frame, position) is not None
