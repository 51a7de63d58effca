"""A broker that deletes and compacts while clients write and read, and is killed in between."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import kafka
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from ottla.base.errors import ErrorCode
from ottla.records.builder import build_batch
from tests.broker_process import BrokerProcess
from tests.integration.calls import fetch_one, list_offset, produce
from tests.raw_client import RawClient
from tests.waiting import repeat_until

BUSY = {
    "log.cleaner.backoff.ms": "20",
    "log.retention.check.interval.ms": "50",
    "log.segment.delete.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}
EARLIEST = -2
KEYS = 40


def make_topic(broker: BrokerProcess, name: str, **configs: str) -> None:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1, config=settings)])[name].result(30)


def write(broker: BrokerProcess, topic: str, versions: range) -> dict[bytes, bytes]:
    """Every key in every version; of each version one key is deleted. Returns what is stored then."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "batch.num.messages": 7})
    stored: dict[bytes, bytes] = {}
    for version in versions:
        for number in range(KEYS):
            key, value = b"key-%d" % number, b"%d-" % version * 10
            producer.produce(topic, value, key)
            stored[key] = value
        gone = b"key-%d" % (version % KEYS)
        producer.produce(topic, None, gone)
        stored.pop(gone)
        producer.flush(30)
    return stored


def read(broker: BrokerProcess, topic: str) -> tuple[dict[bytes, bytes], int]:
    """What is stored under each key for somebody who reads everything, and how many records that took."""
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap, enable_auto_commit=False)
    try:
        partition = kafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        consumer.seek_to_beginning(partition)
        stored: dict[bytes, bytes] = {}
        count = 0
        while consumer.position(partition) < end:
            for record in (consumer.poll(timeout_ms=1000) or {}).get(partition, []):
                count += 1
                stored[record.key] = record.value
        return {key: value for key, value in stored.items() if value is not None}, count
    finally:
        consumer.close()


def compacted_to(broker: BrokerProcess, topic: str) -> int:
    found = [re.search(rf"{topic}-0 was compacted from offset \d+ to (\d+)", line) for line in list(broker.log_lines)]
    return max((int(match[1]) for match in found if match), default=0)


def test_a_table_is_compacted_while_it_is_written_read_and_killed(own_broker: BrokerProcess) -> None:
    own_broker.overrides |= BUSY
    own_broker.start()
    make_topic(
        own_broker, "table", cleanup_policy="compact", segment_bytes="8000", min_cleanable_dirty_ratio="0.01",
        delete_retention_ms="0",
    )  # fmt: skip
    written = 0
    for attempt in range(3):
        versions = range(20 * attempt, 20 * (attempt + 1))
        stored = write(own_broker, "table", versions)
        written += 20 * (KEYS + 1)
        assert read(own_broker, "table")[0] == stored
        if attempt < 2:
            own_broker.kill()
            own_broker.start()
            assert read(own_broker, "table")[0] == stored
    repeat_until(lambda: compacted_to(own_broker, "table") > written - 500)
    left, count = read(own_broker, "table")
    assert left == stored
    assert count < written / 2
    assert own_broker.stop() == 0
    checkpoint = (own_broker.data_dir / "cleaner-offset-checkpoint").read_text().splitlines()
    assert f"table 0 {compacted_to(own_broker, 'table')}" in checkpoint[2:]
    assert [
        path.name for path in (own_broker.data_dir / "table-0").iterdir() if path.suffix in (".swap", ".cleaned")
    ] == []


def test_what_is_older_than_retention_goes_and_a_slow_reader_is_told_where_to_go_on(own_broker: BrokerProcess) -> None:
    own_broker.overrides |= BUSY
    own_broker.start()
    make_topic(own_broker, "stream", retention_ms="-1", segment_bytes="1000")
    now_ms = int(time.time() * 1000)

    def send(client: RawClient, age_ms: int) -> None:
        produced = produce(client, "stream", bytearray(build_batch([(None, b"v" * 300, (), now_ms - age_ms)])))
        assert produced.error_code == 0

    with RawClient(own_broker.port) as client:
        for age_ms in [7_200_000] * 6 + [0] * 6:
            send(client, age_ms)
        change = ConfigEntry("retention.ms", "3600000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, "stream", incremental_configs=[change])
        admin = AdminClient({"bootstrap.servers": own_broker.bootstrap})
        admin.incremental_alter_configs([resource])[resource].result(30)
        repeat_until(lambda: list_offset(client, "stream", EARLIEST).offset == 6)
        behind = fetch_one(client, "stream", 2)
        assert (behind.error_code, behind.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 6)
        assert fetch_one(client, "stream", 6).error_code == 0
    own_broker.kill()
    own_broker.start()
    with RawClient(own_broker.port) as client:
        assert list_offset(client, "stream", EARLIEST).offset == 6
        assert fetch_one(client, "stream", 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_record_without_a_key_is_refused_with_the_whole_batch(own_broker: BrokerProcess) -> None:
    own_broker.start()
    make_topic(own_broker, "table", cleanup_policy="compact")
    records: list[Any] = [(b"k", b"v", (), 1), (None, b"v", (), 1), (b"l", b"v", (), 1), (None, b"w", (), 1)]
    with RawClient(own_broker.port) as client:
        answer = produce(client, "table", bytearray(build_batch(records)))
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert [error.batch_index for error in answer.record_errors] == [1, 3]
        assert {error.batch_index_error_message for error in answer.record_errors} == {
            "Compacted topic cannot accept message without key."
        }
        assert list_offset(client, "table", -1).offset == 0


def children_of(pid: int) -> list[int]:
    threads = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for thread in threads for child in (thread / "children").read_text().split()]


def test_the_process_that_compacts_ends_with_its_broker(own_broker: BrokerProcess) -> None:
    own_broker.overrides |= BUSY | {"log.cleaner.io.max.bytes.per.second": "1000"}
    own_broker.start()
    make_topic(own_broker, "table", cleanup_policy="compact", segment_bytes="3000000")
    producer = Producer({"bootstrap.servers": own_broker.bootstrap})
    for number in range(70):
        producer.produce("table", b"v" * 100_000, b"key-%d" % (number % 5))
    producer.flush(30)
    found: list[int] = []
    repeat_until(lambda: bool(found.extend(children_of(own_broker.pid)) or found))
    own_broker.kill()
    repeat_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in found))
    own_broker.overrides["log.cleaner.io.max.bytes.per.second"] = "1e12"
    own_broker.start()
    repeat_until(lambda: compacted_to(own_broker, "table") > 50)
    assert len(read(own_broker, "table")[0]) == 5
    assert own_broker.stop() == 0
    assert own_broker.tracebacks() == [], "\n".join(own_broker.log_lines)
