"""T12, T13: logs lose what is outdated while they are written to and read, and brokers and cleaners are killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka
import psutil
from confluent_kafka.admin import AdminClient

from ottla.base.errors import ErrorCode
from ottla.records.batch import iter_headers
from ottla.records.reader import Record, read_records
from tests.cluster.chaos.cluster import IDS, Cluster, short_sleep
from tests.cluster.chaos.load import PLAIN, Figures
from tests.cluster.chaos.table import Scene, row
from tests.interop.transactions.raw_producer import fetch
from tests.waiting import PATIENCE_S, join, repeat_until

TABLE = "table"
KEYS = 500
PADDING = b"." * 2000
TOMBSTONE_EVERY = 7
_WORKER = "ottla.log.cleaning.worker"
_CLEANED = "was compacted from offset"
_READ_UNCOMMITTED = 0


@dataclass
class Written:
    """What is known of the writes of a key, in their order."""

    values: list[bytes | None] = field(default_factory=list)
    acknowledged: int = -1
    """The number of the last of them that is in the log for certain."""


class TableWriter:
    """Writes versions of keys to one partition, and now and then deletes one, until it is told to stop."""

    def __init__(self, servers: str, topic: str) -> None:
        self.by_key: dict[bytes, Written] = {b"key %d" % number: Written() for number in range(KEYS)}
        self.by_offset: dict[int, tuple[bytes, bytes | None]] = {}
        self.rounds = 0
        self._topic = topic
        self._settings = {
            "bootstrap.servers": servers,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "delivery.timeout.ms": 60_000,
            "log_level": 0,
        }
        self._is_over = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def stop(self) -> None:
        self._is_over.set()

    def wait_for_more(self, rounds: int = 2) -> None:
        goal = self.rounds + rounds
        repeat_until(lambda: self.rounds >= goal, short_sleep)

    def _run(self) -> None:
        producer = confluent_kafka.Producer(self._settings)
        number = 0
        while not self._is_over.is_set():
            for key, written in self.by_key.items():
                number += 1
                value = None if number % TOMBSTONE_EVERY == 0 else b"%d %s" % (number, PADDING)
                version = len(written.values)
                written.values.append(value)
                producer.produce(
                    self._topic, value, key, partition=0, on_delivery=self._noting(key, written, version, value)
                )
            producer.flush(PATIENCE_S)
            self.rounds += 1

    def _noting(self, key: bytes, written: Written, version: int, value: bytes | None) -> object:
        def note(error: object, message: confluent_kafka.Message) -> None:
            if error is None:
                written.acknowledged = max(written.acknowledged, version)
                offset = message.offset()
                assert offset is not None
                self.by_offset[offset] = (key, value)

        return note

    def check(self, records: list[Record]) -> None:
        """Nothing is wrong in a log, and the last version of each key is in it, deletions included."""
        offsets = [record.offset for record in records]
        assert offsets == sorted(set(offsets)), "offsets go back"
        last: dict[bytes, bytes | None] = {}
        for record in records:
            assert record.key is not None
            expected = self.by_offset.get(record.offset, (record.key, record.value))
            assert expected == (record.key, record.value), f"another record at offset {record.offset}"
            last[record.key] = record.value
        for key, written in self.by_key.items():
            assert key in last, f"{key!r} is gone, and even its deletion"
            assert last[key] in written.values[max(written.acknowledged, 0) :], f"{key!r} is not up to date"


def records_of(partition: Path) -> list[Record]:
    found: list[Record] = []
    for path in sorted(partition.glob("*.log")):
        data = path.read_bytes()
        for position, header in iter_headers(data):
            if not header.is_control:
                found += read_records(data[position : position + header.size], header)
    return found


@contextmanager
def writing(scene: Scene, cluster: Cluster, topic: str) -> Iterator[TableWriter]:
    writer = TableWriter(cluster.servers, topic)
    writer.thread.start()
    try:
        yield writer
    finally:
        writer.stop()
        join(writer.thread)
        scene.figures = Figures(records=len(writer.by_offset))


@row("T12", "compaction under load; brokers and the processes that compact are killed, a transaction stays open")
def compaction(scene: Scene) -> None:
    cluster = scene.cluster(log_cleaner_backoff_ms="100", log_segment_delete_delay_ms="0")
    cluster.create(
        TABLE,
        1,
        cleanup_policy="compact",
        segment_bytes="2000000",
        min_cleanable_dirty_ratio="0.7",
        delete_retention_ms="86400000",
    )
    killed = 0
    with writing(scene, cluster, TABLE) as writer:
        _wait_for_passes(cluster, scene.times(3, 1))
        for number in range(scene.times(6, 2)):
            killed += _kill_a_cleaner(cluster, scene.rng.uniform(0, 0.4))
            writer.wait_for_more()
            victim = IDS[number % len(IDS)]
            cluster.kill(victim)
            cluster.start(victim)
            cluster.wait_until_well(TABLE)
            _wait_for_passes(cluster, 1)
        _keep_a_transaction_open(cluster, writer)
        _wait_for_passes(cluster, 1)
    cluster.wait_until_well(TABLE)
    cluster.end()
    for broker_id in IDS:
        writer.check(records_of(cluster.data_of(broker_id) / f"{TABLE}-0"))
    scene.note = f"{killed} cleaners killed"


def _passes(cluster: Cluster) -> int:
    return sum(_CLEANED in line for broker in cluster.brokers.values() for line in list(broker.log_lines))


def _wait_for_passes(cluster: Cluster, count: int) -> None:
    goal = _passes(cluster) + count
    repeat_until(lambda: _passes(cluster) >= goal, short_sleep)


def _kill_a_cleaner(cluster: Cluster, after_s: float) -> int:
    """Of whichever broker has one next, some time into its work. 0 if it was quicker."""
    found: list[psutil.Process] = []

    def is_there() -> bool:
        for broker in cluster.brokers.values():
            with suppress(psutil.Error):
                found.extend(
                    child for child in psutil.Process(broker.pid).children() if _WORKER in " ".join(child.cmdline())
                )
        return bool(found)

    repeat_until(is_there, short_sleep)
    time.sleep(after_s)
    try:
        os.kill(found[0].pid, signal.SIGKILL)
    except ProcessLookupError:
        return 0
    return 1


def _keep_a_transaction_open(cluster: Cluster, writer: TableWriter) -> None:
    """As long as it is open, nothing at or behind it may be compacted."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.servers, "transactional.id": "open", "log_level": 0}
    )
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    at: list[int] = []
    producer.produce(TABLE, b"open", b"key 0", partition=0, on_delivery=lambda _, message: at.append(message.offset()))
    producer.flush(PATIENCE_S)
    _wait_for_passes(cluster, 1)
    writer.wait_for_more(6)
    offset = at[0]
    with cluster.raw_client(cluster.leader(TABLE)) as client:
        for _ in range(5):
            data = bytes(fetch(client, TABLE, offset, isolation_level=_READ_UNCOMMITTED).records or b"")
            for position, header in iter_headers(data):
                records = read_records(data[position : position + header.size], header)
                wanted = [record.offset for record in records if record.offset >= at[0]]
                assert wanted == list(range(offset, offset + len(wanted))), f"records behind {offset} are gone"
                offset = header.next_offset
    # Aborted, it is as if it had never been.
    producer.abort_transaction(PATIENCE_S)


@row("T13", "retention and DeleteRecords overtake a slow reader; leaders are killed")
def shrinking(scene: Scene) -> None:
    cluster = scene.cluster(log_retention_check_interval_ms="300", log_segment_delete_delay_ms="0")
    cluster.create(PLAIN, 1, cleanup_policy="delete", segment_bytes="1000000", retention_bytes="4000000")
    told = 0
    with writing(scene, cluster, PLAIN) as writer:
        offset = start = 0
        for number in range(scene.times(12, 3)):
            writer.wait_for_more(1)
            if number % 3 == 2:
                start = _delete_records(cluster, max(writer.by_offset) - 100)
            if number % 4 == 3:
                victim = cluster.leader(PLAIN)
                cluster.kill(victim)
                cluster.start(victim)
                cluster.wait_until_well(PLAIN)
            # A reader that takes one answer and is gone for long.
            new_start = _read_slowly(cluster, writer, offset, start)
            if new_start is not None:
                told += 1
                offset = start = new_start
            else:
                offset += 1
    assert told, "the reader was never overtaken"
    scene.note = f"told {told} times where the log begins"


def _delete_records(cluster: Cluster, offset: int) -> int:
    """Asked again as long as there is no leader, by a new client: librdkafka's would go on asking the last one."""
    low_watermarks: list[int] = []

    def is_done() -> bool:
        admin = AdminClient({"bootstrap.servers": cluster.servers, "log_level": 0})
        asked = confluent_kafka.TopicPartition(PLAIN, 0, offset)
        with suppress(confluent_kafka.KafkaException):
            low_watermarks.append(admin.delete_records([asked])[asked].result(PATIENCE_S).low_watermark)
        return bool(low_watermarks)

    repeat_until(is_done, short_sleep)
    assert low_watermarks[0] >= offset
    return low_watermarks[0]


def _read_slowly(cluster: Cluster, writer: TableWriter, offset: int, start: int) -> int | None:
    """Asks for `offset`. What comes has to be what was written there; None if it is there. Else where the log begins,
    which is never before `start` again, and where its first record is."""
    with cluster.raw_client(cluster.leader(PLAIN)) as client:
        answer = fetch(client, PLAIN, offset, isolation_level=_READ_UNCOMMITTED)
        assert answer.log_start_offset >= start, "deleted records are back"
        if answer.error_code == ErrorCode.NONE:
            assert answer.log_start_offset <= offset
            _check_first(writer, bytes(answer.records or b""), offset)
            return None
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and offset < answer.log_start_offset
        again = fetch(client, PLAIN, answer.log_start_offset, isolation_level=_READ_UNCOMMITTED)
        if again.error_code == ErrorCode.NONE:
            _check_first(writer, bytes(again.records or b""), answer.log_start_offset)
        return answer.log_start_offset


def _check_first(writer: TableWriter, data: bytes, offset: int) -> None:
    for position, header in iter_headers(data):
        for record in read_records(data[position : position + header.size], header):
            if record.offset >= offset:
                expected = writer.by_offset.get(record.offset, (record.key, record.value))
                assert expected == (record.key, record.value), f"another record at offset {record.offset}"
