"""Clients at work while leaders move and brokers restart one after the other: three brokers of Apache Kafka.

All of it happens at the same time, once. Each test looks at what became of one kind of client.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

import ottla
from ottla import TopicPartition, aio
from ottla.base.errors import ErrorCode
from tests.client.admin_shells import until
from tests.client.conftest import QUICK_GROUPS
from tests.client.consumer_shells import PATIENCE_S, open_shell
from tests.client.copying import copy_with_asyncio, copy_with_threads
from tests.client.kafka_cluster import leader_seen, make_partition, started_cluster
from tests.client.network_run import PARTITIONS, judge, key_of, read_numbers, value_of
from tests.client.producers import AioClient, SyncClient
from tests.kafka_process import KafkaProcess

pytestmark = pytest.mark.xdist_group("apache-kafka")

SETTINGS = {
    **QUICK_GROUPS,
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "auto.leader.rebalance.enable": "false",
}
KINDS = ["sync", "aio"]
GROUPS: dict[str, dict[str, Any]] = {
    "range": {"partition_assignment_strategy": "range"},
    "cooperative-sticky": {"partition_assignment_strategy": "cooperative-sticky"},
    "consumer": {"group_protocol": "consumer"},
}
PAUSE_S = 0.01
RECORDS_AT_ONCE = 10


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[KafkaProcess]]:
    with started_cluster(tmp_path_factory.mktemp("kafkas"), SETTINGS, broker_count=3) as started:
        yield started


# Clients at work


def source_of(kind: str) -> str:
    return f"source-{kind}"


def copy_of(kind: str) -> str:
    return f"copy-{kind}"


def produce_with_threads(bootstrap: str, topic: str, is_over: Event) -> list[ottla.RecordMetadata]:
    """What was said of each record, by its number."""
    futures: list[ottla.SendFuture] = []
    with ottla.Producer(bootstrap_servers=bootstrap) as producer:
        while not is_over.is_set():
            numbers = range(len(futures), len(futures) + RECORDS_AT_ONCE)
            futures += [producer.send(topic, value_of(number), key_of(number)) for number in numbers]
            time.sleep(PAUSE_S)
        return [future.result(PATIENCE_S) for future in futures]


async def produce_with_asyncio(bootstrap: str, topic: str, is_over: Event) -> list[ottla.RecordMetadata]:
    futures: list[aio.SendFuture] = []
    async with aio.Producer(bootstrap_servers=bootstrap) as producer:
        while not is_over.is_set():
            numbers = range(len(futures), len(futures) + RECORDS_AT_ONCE)
            futures += [await producer.send(topic, value_of(number), key_of(number)) for number in numbers]
            await asyncio.sleep(PAUSE_S)
        return [await future for future in futures]


class Member(ottla.RebalanceListener):
    """One of a group's, with all it has read; while it holds a partition it must not go back there."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, set[int]] = {}
        self._highest: dict[TopicPartition, int] = {}

    def on_revoked(self, partitions: Any) -> None:
        for partition in partitions:
            self._highest.pop(partition, None)

    on_lost = on_revoked

    def run(self, bootstrap: str, group: str, is_over: Event) -> None:
        settings = {"auto_offset_reset": "earliest", "auto_commit_interval_ms": 200, **GROUPS[group]}
        with ottla.Consumer(bootstrap_servers=bootstrap, group_id=group, **settings) as consumer:
            consumer.subscribe([source_of(kind) for kind in KINDS], listener=self)
            while not is_over.is_set():
                for record in consumer.poll(0.2):
                    partition = record.topic_partition
                    assert record.offset > self._highest.get(partition, -1), f"{partition} was read twice"
                    self._highest[partition] = record.offset
                    self.offsets.setdefault(partition, set()).add(record.offset)


class Work:
    """All clients, each in a thread; they go on until `finish`."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.sent: dict[str, list[ottla.RecordMetadata]] = {}
        self.members = {group: [Member(), Member()] for group in GROUPS}
        self._enough_is_sent, self._is_over = Event(), Event()
        self._threads = ThreadPoolExecutor(max_workers=20)
        begin = self._threads.submit
        self._senders: dict[str, Future[list[ottla.RecordMetadata]]] = {
            "sync": begin(produce_with_threads, bootstrap, source_of("sync"), self._enough_is_sent),
            "aio": begin(asyncio.run, produce_with_asyncio(bootstrap, source_of("aio"), self._enough_is_sent)),
        }
        servers = {"bootstrap.servers": bootstrap}
        self._copiers: list[Future[None]] = [
            begin(copy_with_threads, servers, source_of("sync"), copy_of("sync"), self._is_copied("sync")),
            begin(asyncio.run, copy_with_asyncio(servers, source_of("aio"), copy_of("aio"), self._is_copied("aio"))),
        ]
        self._readers = [
            begin(member.run, bootstrap, group, self._is_over)
            for group, members in self.members.items()
            for member in members
        ]

    def _is_copied(self, kind: str) -> Callable[[int], bool]:
        return lambda copied: self._is_over.is_set() or (kind in self.sent and copied >= len(self.sent[kind]))

    def unread(self, group: str) -> int:
        """How many records no member of the group has got."""
        stored = {(source_of(kind), record.partition, record.offset) for kind in KINDS for record in self.sent[kind]}
        for member in self.members[group]:
            for (topic, partition), offsets in list(member.offsets.items()):
                stored -= {(topic, partition, offset) for offset in list(offsets)}
        return len(stored)

    def finish(self) -> None:
        """Everything that was sent has been copied and read when this returns."""
        self._enough_is_sent.set()
        self.sent.update({kind: sender.result(PATIENCE_S) for kind, sender in self._senders.items()})
        for copier in self._copiers:
            copier.result(PATIENCE_S)
        until(lambda: any(reader.done() for reader in self._readers) or not any(map(self.unread, GROUPS)))
        self._is_over.set()
        for reader in self._readers:
            reader.result(PATIENCE_S)

    def close(self) -> None:
        self._enough_is_sent.set()
        self._is_over.set()
        self._threads.shutdown()


@pytest.fixture(scope="module")
def work(brokers: list[KafkaProcess]) -> Work:
    """What was done during a leader move and a rolling restart. The controller stays."""
    bootstrap = ",".join(broker.bootstrap for broker in brokers)
    topics = [name(kind) for kind in KINDS for name in (source_of, copy_of)]
    with ottla.Admin(bootstrap_servers=bootstrap) as admin:
        until(lambda: len(admin.describe_cluster().brokers) == len(brokers))
        safe = {"min.insync.replicas": "2"}
        admin.create_topics([ottla.NewTopic(topic, PARTITIONS, 3, configs=safe) for topic in topics]).check()
        work = Work(bootstrap)
        try:
            every_topic = [*topics, "__consumer_offsets", "__transaction_state"]
            until(lambda: len(admin.describe_topics(every_topic).results) == len(every_topic))
            move_leaders(admin, every_topic)
            for broker in brokers[1:]:
                broker.stop()
                broker.start()
                until(lambda: is_in_sync(admin, every_topic))
            work.finish()
        finally:
            work.close()
    return work


def move_leaders(admin: ottla.Admin, topics: list[str]) -> None:
    """Every partition gets another leader."""
    moved = {
        TopicPartition(str(topic), info.partition): [*info.replicas[1:], info.replicas[0]]
        for topic, described in admin.describe_topics(topics).check().items()
        for info in described.partitions
    }
    admin.alter_partition_reassignments(moved).check()
    until(lambda: admin.list_partition_reassignments() == {})
    errors = admin.elect_leaders(moved).errors.values()
    assert {error.code for error in errors} <= {ErrorCode.ELECTION_NOT_NEEDED}


def is_in_sync(admin: ottla.Admin, topics: list[str]) -> bool:
    return all(
        len(info.isr) == len(info.replicas)
        for described in admin.describe_topics(topics).check().values()
        for info in described.partitions
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_producer_loses_doubles_and_reorders_nothing(work: Work, kind: str) -> None:
    stored, sent = read_numbers(work.bootstrap, source_of(kind)), work.sent[kind]
    assert judge(stored, len(sent)) == (0, 0, 0)
    told = [(record.partition, record.offset) for record in sent]
    places = {
        number: (partition, offset) for partition, found in enumerate(stored) for offset, number in enumerate(found)
    }
    assert told == [places[number] for number in range(len(sent))]


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_reads_everything(work: Work, group: str) -> None:
    assert work.unread(group) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_copying_is_exactly_once(work: Work, kind: str) -> None:
    assert judge(read_numbers(work.bootstrap, copy_of(kind)), len(work.sent[kind])) == (0, 0, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_leader_move_is_followed(brokers: list[KafkaProcess], kind: str, new_topic: str) -> None:
    """By clients that have nothing to do meanwhile, so that they learn of it from the broker they ask next."""
    bootstrap = brokers[0].bootstrap
    produce_with = {client.name: client for client in (SyncClient, AioClient)}[kind]
    with (
        ottla.Admin(bootstrap_servers=bootstrap) as admin,
        produce_with(bootstrap_servers=bootstrap) as producer,
        open_shell(kind, bootstrap) as shell,
    ):
        partition, consumer = make_partition(admin, new_topic, [2, 3]), shell()
        consumer.assign([partition])
        for number, replicas in enumerate(([2, 3], [3, 2], [2, 3])):
            if number:
                admin.alter_partition_reassignments({partition: replicas}).check()
                until(lambda: not admin.list_partition_reassignments())
                admin.elect_leaders([partition]).check()
            until(lambda leader=replicas[0]: leader_seen(admin, partition) == leader)  # type: ignore[misc]
            assert producer.send(new_topic, b"%d" % number).result(PATIENCE_S).offset == number
            (record,) = consumer.poll(PATIENCE_S)
            assert (record.offset, record.value) == (number, b"%d" % number)
