"""The short way of a fetch gives what the long way gives, for every request that it does not leave to it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.types import Uuid
from ottla.broker.authorizer import AllowAll
from ottla.broker.config import BrokerConfig
from ottla.broker.handler import RequestContext
from ottla.broker.node import Broker
from ottla.broker.straight_fetch import StraightFetch
from ottla.broker.topic_admin import NewTopic
from ottla.log.partition_log import Origin
from ottla.net.service import Deferred
from ottla.records.builder import NewRecord, build_batch
from ottla.records.control import end_transaction_marker
from ottla.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from ottla.wire.header import encode_request_frame, read_request_header, skim_request_header
from tests.unit.broker.local_connection import LocalConnection

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
            straight = StraightFetch(self.broker).reply(version, correlation_id, frame, body) if body else None
            context = RequestContext(
                self.broker, LocalConnection(), api_key, version, correlation_id, client_id, frame, position  # type: ignore[arg-type]
            )  # fmt: skip
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
    broker = Broker(BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory)}))

    async def fill() -> None:
        await broker.start()
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

    loop.run_until_complete(fill())
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
    ("partition", {"last_fetched_epoch": 0}),
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
    assert straight.reply(version, correlation_id, frame, position) is not None
    for end in range(position, len(frame)):
        assert straight.reply(version, correlation_id, frame[:end], position) is None


def test_where_somebody_decides_who_may_read_everything_goes_the_long_way(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Strict(AllowAll):
        pass

    monkeypatch.setattr(running.broker, "authorizer", Strict())
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
    straight, long = running.both_ways(request_frame(12, [topic_of(running, wanted)], max_wait_ms=0, min_bytes=1))
    assert straight is None
    assert long


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
