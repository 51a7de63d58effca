"""Transactions through confluent-kafka, kafka-python and aiokafka, whose records all of them, and kcat, read."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tests.broker_process import BrokerProcess
from tests.interop.peers.confluent import make_topic
from tests.interop.peers.confluent import producer as plain_producer
from tests.interop.peers.kcat import KCAT
from tests.interop.peers.peer import PATIENCE_S
from tests.interop.transactions.clients import READERS, WRITERS, FencedError, Reader, Writer, make_reader, make_writer
from tests.interop.transactions.open_and_wait import RECORDS
from tests.interop.transactions.raw_producer import fetch, last_stable_offset, until
from tests.interop.transactions.readers import read_all, read_values
from tests.raw_client import RawClient

pytestmark = pytest.mark.interop

PARTITIONS = 3

MakeWriter = Callable[..., Writer]
MakeReader = Callable[..., Reader]


@pytest.fixture(params=sorted(WRITERS))
def client(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def writer(client: str, txn_broker: BrokerProcess) -> Iterator[MakeWriter]:
    made: list[Writer] = []

    def make(transactional_id: str, timeout_ms: int = 60_000) -> Writer:
        made.append(make_writer(client, txn_broker.bootstrap, transactional_id, timeout_ms))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def reader(client: str, txn_broker: BrokerProcess) -> Iterator[MakeReader]:
    made: list[Reader] = []

    def make(group: str, topic: str, other_client: str = "") -> Reader:
        made.append(make_reader(other_client or client, txn_broker.bootstrap, group, topic))
        return made[-1]

    yield make
    for one in made:
        one.close()


def poll_values(source: Reader, count: int) -> list[bytes]:
    values: list[bytes] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while len(values) < count and time.monotonic() < deadline_s:
        values += [consumed.value for consumed in source.poll()]
    return values


def kcat_values(bootstrap: str, topic: str, partition: int) -> list[bytes]:
    command = ["kcat", "-b", bootstrap, "-C", "-t", topic, "-p", str(partition), "-o", "beginning", "-e", "-q"]
    command += ["-X", "isolation.level=read_committed"]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=True)
    return done.stdout.splitlines()


def test_every_reader_sees_exactly_what_was_committed(
    txn_broker: BrokerProcess, writer: MakeWriter, reader: MakeReader, new_topic: str
) -> None:
    make_topic(txn_broker.bootstrap, new_topic, PARTITIONS)
    rng = random.Random(new_topic)
    committed: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    sent = 0
    writers = [writer(f"{new_topic}-{number}") for number in range(2)]
    for number in range(30):
        one = rng.choice(writers)
        commits = rng.random() < 0.6
        one.begin()
        # Now and then a transaction is empty.
        for _ in range(rng.choice([0, 1, 20, 60])):
            value, partition = b"%d in %d" % (sent, number), rng.randrange(PARTITIONS)
            one.send(new_topic, value, partition)
            sent += 1
            if commits:
                committed[partition].append(value)
        if commits:
            one.commit()
        else:
            # Without this a client may drop what it has not sent yet, and there would be nothing to abort.
            one.flush()
            one.abort()
    found = read_all(txn_broker.bootstrap, new_topic, range(PARTITIONS))
    assert {partition: [value for _, value in records] for partition, records in found.items()} == committed
    everything = read_all(txn_broker.bootstrap, new_topic, range(PARTITIONS), "read_uncommitted")
    assert sum(map(len, everything.values())) == sent
    for partition in range(PARTITIONS):
        if KCAT is not None:
            assert kcat_values(txn_broker.bootstrap, new_topic, partition) == committed[partition]
    wanted = sorted(value for values in committed.values() for value in values)
    for other_client in sorted(READERS):
        source = reader(f"{new_topic}-{other_client}", new_topic, other_client)
        assert sorted(poll_values(source, len(wanted))) == wanted


def test_an_idle_reader_gets_a_large_transaction_whole(
    txn_broker: BrokerProcess, writer: MakeWriter, new_topic: str
) -> None:
    make_topic(txn_broker.bootstrap, new_topic)
    one = writer(new_topic)
    values = [b"%d %s" % (number, b"x" * 1000) for number in range(3_000)]
    for commits in (False, True):
        one.begin()
        for value in values:
            one.send(new_topic, value)
        one.flush()
        assert read_values(txn_broker.bootstrap, new_topic) == []
        if commits:
            one.commit()
        else:
            one.abort()
    assert read_values(txn_broker.bootstrap, new_topic) == values


def test_a_zombie_is_fenced(txn_broker: BrokerProcess, writer: MakeWriter, new_topic: str) -> None:
    make_topic(txn_broker.bootstrap, new_topic)
    zombie = writer(new_topic)
    zombie.begin()
    zombie.send(new_topic, b"of the zombie")
    zombie.flush()
    successor = writer(new_topic)
    successor.begin()
    successor.send(new_topic, b"of the successor")
    with pytest.raises(FencedError):
        zombie.commit()
    successor.commit()
    assert read_values(txn_broker.bootstrap, new_topic) == [b"of the successor"]


def test_consume_transform_produce(
    txn_broker: BrokerProcess, writer: MakeWriter, reader: MakeReader, new_topic: str
) -> None:
    """Positions move with the output: what an aborted transaction had read is read again, and nothing twice."""
    count = 1_000
    source_topic, target = f"{new_topic}-in", f"{new_topic}-out"
    for topic in (source_topic, target):
        make_topic(txn_broker.bootstrap, topic, PARTITIONS)
    source = plain_producer(txn_broker.bootstrap)
    for number in range(count):
        source.produce(source_topic, b"%d" % number, partition=number % PARTITIONS)
    assert source.flush(PATIENCE_S) == 0
    rng = random.Random(7)
    one = writer(new_topic)
    incoming = reader(f"{new_topic}-group", source_topic)
    done = aborts = 0
    deadline_s = time.monotonic() + 2 * PATIENCE_S
    while done < count and time.monotonic() < deadline_s:
        consumed = incoming.poll()
        if not consumed:
            continue
        one.begin()
        for record in consumed:
            one.send(target, b"seen " + record.value, record.partition)
        one.send_offsets(incoming, consumed)
        # The first one always, so that there is one.
        if aborts == 0 or rng.random() < 0.3:
            one.flush()
            one.abort()
            incoming.rewind()
            aborts += 1
        else:
            one.commit()
            done += len(consumed)
    found = read_all(txn_broker.bootstrap, target, range(PARTITIONS))
    for partition, records in found.items():
        assert [value for _, value in records] == [b"seen %d" % n for n in range(partition, count, PARTITIONS)]
    everything = read_all(txn_broker.bootstrap, target, range(PARTITIONS), "read_uncommitted")
    assert sum(map(len, everything.values())) > count
    incoming.close()
    assert make_reader_at_end(reader, f"{new_topic}-group", source_topic) == []


def make_reader_at_end(reader: MakeReader, group: str, topic: str) -> list[bytes]:
    """What another member of the group would still read: it goes on where the transactions left off."""
    return [consumed.value for _ in range(5) for consumed in reader(group, topic, "confluent-kafka").poll()][:10]


def test_readers_go_on_after_a_producer_died_in_its_transaction(
    client: str, txn_broker: BrokerProcess, new_topic: str
) -> None:
    timeout_ms = 3_000
    make_topic(txn_broker.bootstrap, new_topic)
    command = [sys.executable, "-m", "tests.interop.transactions.open_and_wait"]
    command += [client, txn_broker.bootstrap, new_topic, str(timeout_ms), new_topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "open\n"
        victim.kill()
    other = plain_producer(txn_broker.bootstrap)
    other.produce(new_topic, b"after it", partition=0)
    assert other.flush(PATIENCE_S) == 0
    with RawClient(txn_broker.port) as raw:
        assert last_stable_offset(raw, new_topic) == 0
        assert fetch(raw, new_topic).high_watermark == RECORDS + 1
        until(lambda: last_stable_offset(raw, new_topic), lambda offset: offset == RECORDS + 2)
    assert read_values(txn_broker.bootstrap, new_topic) == [b"after it"]


def test_a_successor_need_not_wait_for_the_timeout(
    client: str, txn_broker: BrokerProcess, writer: MakeWriter, new_topic: str
) -> None:
    make_topic(txn_broker.bootstrap, new_topic)
    abandoned = writer(new_topic)
    abandoned.begin()
    abandoned.send(new_topic, b"abandoned")
    abandoned.flush()
    successor = writer(new_topic)
    with RawClient(txn_broker.port) as raw:
        assert last_stable_offset(raw, new_topic) == 2
    successor.begin()
    successor.send(new_topic, b"of the successor")
    successor.commit()
    assert read_values(txn_broker.bootstrap, new_topic) == [b"of the successor"]
