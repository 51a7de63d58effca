"""Apache Kafka's cleaner and ours on copies of the same segments: they leave the same batches."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from ottla.base.types import NIL_UUID, TopicPartition
from ottla.log.checkpoints import CheckpointError, read_offsets
from ottla.log.config import LogConfig
from ottla.log.recovery import load_partition
from ottla.records.batch import DELETE_HORIZON_BIT, iter_headers
from ottla.records.reader import read_records
from tests.interop.kafka_tools import fetch_kafka_libs
from tests.kafka_process import KafkaProcess
from tests.unit.log.cleaning_passes import clean
from tests.waiting import repeat_until

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("apache-kafka")]

SEED = 20_260
SEGMENT_BYTES = 20_000
SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.segment.delete.delay.ms": "1000",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
}
TP = TopicPartition("table", 0)


def write_at_random(bootstrap: str) -> None:
    chance = random.Random(SEED)
    producers = [
        Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5, **more})
        for codec, more in [
            ("none", {}),
            ("gzip", {"enable.idempotence": True}),
            ("lz4", {}),
            ("zstd", {"transactional.id": "one"}),
            ("snappy", {"transactional.id": "two"}),
        ]
    ]
    for producer in producers[3:]:
        producer.init_transactions(30)
    for _ in range(150):
        producer = chance.choice(producers)
        is_transactional = producer in producers[3:]
        if is_transactional:
            producer.begin_transaction()
        for _ in range(chance.randint(1, 30)):
            key = b"k" * chance.randint(0, 20) + b"%d" % chance.randint(0, 40)
            value = None if chance.random() < 0.1 else chance.randbytes(chance.randint(0, 60))
            headers = [("h", b"x")] * chance.randint(1, 2) if chance.random() < 0.2 else None
            producer.produce(TP.topic, value, key, headers=headers)
        producer.flush(30)
        if is_transactional:
            if chance.random() < 0.5:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)


def cleaned_by_kafka(kafka: KafkaProcess) -> int:
    try:
        return read_offsets(kafka.data_dir / "logs" / "cleaner-offset-checkpoint").get(TP, 0)
    except CheckpointError:
        return 0


def batches(directory: Path, below: int) -> list[object]:
    """Headers without sizes, checksums and the moment of a pass, and records, of all batches below an offset."""
    found: list[object] = []
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        for position, header in iter_headers(data):
            if header.base_offset < below:
                comparable = header._replace(batch_length=0, crc=0)
                if header.attributes & DELETE_HORIZON_BIT:
                    comparable = comparable._replace(base_timestamp=0)
                found.append((path.name, comparable, read_records(data[position:], header)))
    return found


def test_both_leave_the_same(tmp_path: Path) -> None:
    kafka = KafkaProcess(fetch_kafka_libs(), tmp_path / "kafka", SETTINGS).start()
    try:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        settings = {
            "cleanup.policy": "compact",
            "segment.bytes": str(SEGMENT_BYTES),
            "min.cleanable.dirty.ratio": "1.0",
        }
        admin.create_topics([NewTopic(TP.topic, 1, 1, config=settings)])[TP.topic].result(30)
        write_at_random(kafka.bootstrap)
        theirs = kafka.data_dir / "logs" / str(TP)
        ours = Path(shutil.copytree(theirs, tmp_path / str(TP)))
        change = ConfigEntry("min.cleanable.dirty.ratio", "0.01", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, TP.topic, incremental_configs=[change])
        admin.incremental_alter_configs([resource])[resource].result(30)
        last = max(int(path.stem) for path in theirs.glob("*.log"))
        repeat_until(lambda: cleaned_by_kafka(kafka) == last)
        their_batches = batches(theirs, last)
    finally:
        kafka.stop()
    config = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=SEGMENT_BYTES)
    log = load_partition(
        ours, TP, NIL_UUID, config, is_clean=False, recovery_point=0, log_start_offset=0,
        high_watermark=2**62, now_ms=0,
    )  # fmt: skip
    newest_ms = max(segment.max_timestamp for segment in log.segments.all())
    cleaner = clean(log, newest_ms)
    assert cleaner is not None and cleaner.end_offset == last
    our_batches = batches(ours, last)
    assert len(our_batches) > 20
    assert our_batches == their_batches
