"""Replicas that move between log directories while producers and consumers use them (KIP-113)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.base.errors import ErrorCode
from ottla.records.batch import iter_headers
from ottla.records.reader import read_records
from ottla.wire.apis.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from ottla.wire.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.wire.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.apis.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from ottla.wire.apis.fetch import FetchPartition, FetchResponse
from tests.broker_process import BrokerProcess
from tests.integration.calls import batch, create_topic, fetch_one, fetch_request, list_offset, produce
from tests.raw_client import ConnectionClosedError, RawClient

WAIT_S = 30
SLOW = "replica.alter.log.dirs.io.max.bytes.per.second"


class TwoDirBroker(BrokerProcess):
    def __init__(self, tmp_path: Path) -> None:
        self.dirs = [tmp_path / "a", tmp_path / "b"]
        super().__init__(tmp_path, {"log.dirs": ",".join(map(str, self.dirs)), "log.segment.delete.delay.ms": "200"})

    def holders(self, topic: str) -> list[Path]:
        """The directories that hold the partition."""
        return [path for path in self.dirs if (path / f"{topic}-0").exists()]

    def home(self, topic: str) -> Path:
        (path,) = self.holders(topic)
        return path

    def other(self, topic: str) -> Path:
        return self.dirs[1 - self.dirs.index(self.home(topic))]

    def log_bytes(self, topic: str) -> bytes:
        return b"".join(path.read_bytes() for path in sorted((self.home(topic) / f"{topic}-0").glob("*.log")))


@pytest.fixture
def broker2(tmp_path: Path) -> Iterator[TwoDirBroker]:
    process = TwoDirBroker(tmp_path)
    yield process
    process.kill()


def move(client: RawClient, topic: str, path: Path | str, index: int = 0, version: int = 2) -> int:
    request = AlterReplicaLogDirsRequest(
        dirs=[AlterReplicaLogDir(path=str(path), topics=[AlterReplicaLogDirTopic(name=topic, partitions=[index])])]
    )
    response = client.call(request, version)
    assert isinstance(response, AlterReplicaLogDirsResponse)
    return response.results[0].partitions[0].error_code


def described(client: RawClient, topic: str) -> dict[str, DescribeLogDirsPartition]:
    """What DescribeLogDirs says of partition 0, by directory."""
    response = client.call(DescribeLogDirsRequest(topics=None), 4)
    assert isinstance(response, DescribeLogDirsResponse)
    return {
        result.log_dir: partition
        for result in response.results
        for found in result.topics
        if found.name == topic
        for partition in found.partitions
    }


def wait_until_in(client: RawClient, broker: TwoDirBroker, topic: str, path: Path) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        found = described(client, topic)
        if set(found) == {str(path)} and broker.holders(topic) == [path]:
            assert not found[str(path)].is_future_key
            return
        assert time.monotonic() < deadline, (found, list(broker.log_lines))
        time.sleep(0.02)


def values(client: RawClient, topic: str, offset: int = 0) -> list[bytes | None]:
    """All that a consumer sees from `offset` on; the offsets must follow each other."""
    found: list[bytes | None] = []
    while True:
        fetched = fetch_one(client, topic, offset)
        assert fetched.error_code == 0
        data = memoryview(fetched.records or b"")
        records = [r for at, h in iter_headers(data) for r in read_records(data[at:], h) if r.offset >= offset]
        if not records:
            return found
        assert [r.offset for r in records] == list(range(offset, offset + len(records)))
        found += [r.value for r in records]
        offset = records[-1].offset + 1


class Producer(threading.Thread):
    """Sends numbered records one after the other, and knows which were acknowledged and where they lie."""

    def __init__(self, port: int, topic: str) -> None:
        super().__init__(daemon=True)
        self._client = RawClient(port)
        self._topic = topic
        self._ending = threading.Event()
        self.acked: list[tuple[int, bytes]] = []
        self._refusal: object = None

    def run(self) -> None:
        number = 0
        while not self._ending.is_set():
            value = b"live-%06d" % number + b"." * 1000
            try:
                reply = produce(self._client, self._topic, batch(value))
            except (ConnectionClosedError, OSError):
                return
            if reply.error_code != 0:
                self._refusal = reply
                return
            self.acked.append((reply.base_offset, value))
            number += 1

    def end(self) -> list[tuple[int, bytes]]:
        self._ending.set()
        self.join(WAIT_S)
        assert not self.is_alive()
        assert self._refusal is None
        return self.acked

    def wait_for(self, count: int) -> None:
        goal = len(self.acked) + count
        deadline = time.monotonic() + WAIT_S
        while len(self.acked) < goal:
            assert self._refusal is None
            assert self.is_alive() and time.monotonic() < deadline
            time.sleep(0.005)


def test_a_partition_moves_under_load_and_nobody_notices(broker2: TwoDirBroker) -> None:
    broker2.start()
    with RawClient(broker2.port) as client:
        create_topic(client, "moving", segment_bytes="100000")
        for number in range(300):
            produce(client, "moving", batch(b"early-%d" % number + b"." * 2000))
        first_home, target = broker2.home("moving"), broker2.other("moving")
        producer = Producer(broker2.port, "moving")
        producer.start()
        producer.wait_for(20)
        for path in (target, first_home, target):
            assert move(client, "moving", path) == 0
            wait_until_in(client, broker2, "moving", path)
            producer.wait_for(20)
        acked = producer.end()
        seen = values(client, "moving")
        assert len(seen) == 300 + len(acked)
        assert [(offset, seen[offset]) for offset, _ in acked] == acked
        assert list_offset(client, "moving", -1).offset == len(seen)
    before = broker2.log_bytes("moving")
    assert broker2.stop() == 0
    broker2.start()
    assert broker2.home("moving") == target
    assert broker2.log_bytes("moving") == before
    with RawClient(broker2.port) as client:
        assert values(client, "moving") == seen
        assert produce(client, "moving", batch(b"after")).base_offset == len(seen)
    assert broker2.tracebacks() == []


def test_idempotent_producers_and_deleted_records_move_along(broker2: TwoDirBroker) -> None:
    broker2.start()
    with RawClient(broker2.port) as client:
        create_topic(client, "kept")
        sent = [batch(b"%d" % n, b"+", producer_id=77, producer_epoch=0, base_sequence=2 * n) for n in range(10)]
        for data in sent:
            assert produce(client, "kept", bytearray(data)).error_code == 0
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="kept", partitions=[DeleteRecordsPartition(partition_index=0, offset=5)])],
            timeout_ms=5000,
        )
        deleted = client.call(request, 2)
        assert isinstance(deleted, DeleteRecordsResponse) and deleted.topics[0].partitions[0].error_code == 0
        target = broker2.other("kept")
        assert move(client, "kept", target, version=1) == 0
        wait_until_in(client, broker2, "kept", target)
        assert list_offset(client, "kept", -2).offset == 5
        assert values(client, "kept", 5)[0] == b"+"
        assert fetch_one(client, "kept", 4).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert produce(client, "kept", bytearray(sent[9])).base_offset == 18, "a duplicate must be known as one"
        gap = batch(b"x", producer_id=77, producer_epoch=0, base_sequence=99)
        assert produce(client, "kept", gap).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_waiting_fetch_gets_what_comes_after_the_move(broker2: TwoDirBroker) -> None:
    broker2.start()
    with RawClient(broker2.port) as client, RawClient(broker2.port) as waiting:
        create_topic(client, "quiet")
        produce(client, "quiet", batch(b"one"))
        wanted = FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1_000_000)
        waiting.send(fetch_request({"quiet": [wanted]}, max_wait_ms=20_000), 11)
        target = broker2.other("quiet")
        assert move(client, "quiet", target) == 0
        wait_until_in(client, broker2, "quiet", target)
        produce(client, "quiet", batch(b"two"))
        reply = waiting.receive(FetchResponse, 11)
        assert len(list(iter_headers(reply.responses[0].partitions[0].records or b""))) == 1


def test_what_is_refused(broker2: TwoDirBroker) -> None:
    broker2.start()
    with RawClient(broker2.port) as client:
        create_topic(client, "here")
        home, other = broker2.home("here"), broker2.other("here")
        assert move(client, "here", "/nowhere") == ErrorCode.LOG_DIR_NOT_FOUND
        assert move(client, "here", "a") == ErrorCode.LOG_DIR_NOT_FOUND
        assert move(client, "here", home) == 0
        assert broker2.holders("here") == [home]
        assert move(client, "here", other, index=5) == ErrorCode.REPLICA_NOT_AVAILABLE
        # A wish for a partition that does not exist yet is remembered (the directory would else be the emptier one).
        for number in range(4):
            assert move(client, f"later{number}", other) == ErrorCode.REPLICA_NOT_AVAILABLE
            create_topic(client, f"later{number}")
            assert broker2.home(f"later{number}") == other


def slow_move(broker: TwoDirBroker, client: RawClient, topic: str) -> tuple[Path, Path]:
    """A move that has begun and will not end by itself while the test lasts."""
    create_topic(client, topic)
    for number in range(40):
        produce(client, topic, batch(b"%04d" % number + bytes(100_000)))
    home, target = broker.home(topic), broker.other(topic)
    assert move(client, topic, target) == 0
    deadline = time.monotonic() + WAIT_S
    while described(client, topic).get(str(target), DescribeLogDirsPartition()).partition_size == 0:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return home, target


def test_an_unfinished_move_is_shown_and_can_be_called_off(broker2: TwoDirBroker) -> None:
    broker2.overrides[SLOW] = "100000"
    broker2.start()
    with RawClient(broker2.port) as client:
        home, target = slow_move(broker2, client, "slow")
        found = described(client, "slow")
        assert set(found) == {str(home), str(target)}
        assert not found[str(home)].is_future_key and found[str(home)].offset_lag == 0
        assert found[str(target)].is_future_key and 0 < found[str(target)].offset_lag < 40
        assert found[str(target)].partition_size < found[str(home)].partition_size
        assert move(client, "slow", home) == 0
        wait_until_in(client, broker2, "slow", home)
        deadline = time.monotonic() + WAIT_S
        while list(target.glob("*-future")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert len(values(client, "slow")) == 40


def test_deleting_the_topic_ends_the_move(broker2: TwoDirBroker) -> None:
    broker2.overrides[SLOW] = "100000"
    broker2.start()
    with RawClient(broker2.port) as client:
        slow_move(broker2, client, "doomed")
        client.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="doomed")]), 6)
        create_topic(client, "doomed")
        assert fetch_one(client, "doomed", 0).high_watermark == 0
        deadline = time.monotonic() + WAIT_S
        while [p for d in broker2.dirs for p in d.glob("*-future")] or len(described(client, "doomed")) != 1:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert produce(client, "doomed", batch(b"new")).base_offset == 0


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_broker_that_ends_in_the_middle_of_a_move(broker2: TwoDirBroker, is_killed: bool) -> None:
    broker2.overrides[SLOW] = "100000"
    broker2.start()
    with RawClient(broker2.port) as client:
        home, target = slow_move(broker2, client, "cut")
        produce(client, "cut", batch(b"last"))
        seen = values(client, "cut")
    if is_killed:
        broker2.kill()
    else:
        assert broker2.stop() == 0
    assert list(target.glob("*-future"))
    broker2.start()
    assert not list(target.glob("*-future"))
    assert broker2.holders("cut") == [home]
    assert sum("being moved here" in line for line in broker2.log_lines) == 1
    with RawClient(broker2.port) as client:
        assert values(client, "cut") == seen and len(seen) == 41


def test_kill_9_again_and_again_while_partitions_move(broker2: TwoDirBroker) -> None:
    broker2.start()
    expected: list[tuple[int, bytes]] = []
    with RawClient(broker2.port) as client:
        create_topic(client, "torn", segment_bytes="50000")
    for number in range(4):
        producer = Producer(broker2.port, "torn")
        producer.start()
        producer.wait_for(10)
        with RawClient(broker2.port) as client:
            assert move(client, "torn", broker2.other("torn")) == 0
            # Each round the end comes at another place of the move.
            time.sleep(0.01 * number)
            broker2.kill()
        expected += producer.end()
        broker2.start()
        assert len(broker2.holders("torn")) == 1
        with RawClient(broker2.port) as client:
            seen = values(client, "torn")
            assert [(offset, seen[offset]) for offset, _ in expected] == expected
    assert broker2.tracebacks() == []
