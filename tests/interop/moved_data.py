"""What a broker is filled with before another one starts on its directories, and all a client can see of it then."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

import ottla
from ottla import TopicPartition
from tests.waiting import repeat_until

FIRST_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPICS = {
    "codecs": {"segment.bytes": "4000", "index.interval.bytes": "100", "retention.ms": "-1"},
    "compacted": {
        "cleanup.policy": "compact",
        "segment.bytes": "2000",
        "min.cleanable.dirty.ratio": "0.01",
        "file.delete.delay.ms": "0",
    },
    "transactional": {"retention.ms": "-1"},
    "open": {"retention.ms": "-1"},
}
PARTITIONS = {"codecs": 2}
GROUPS = ("readers", "movers")
MOVER = "mover"
LEFT_OPEN = "left-open"


def fill(bootstrap: str) -> confluent_kafka.Producer:
    """Returns the producer whose transaction is open; it must not be ended before the broker."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, PARTITIONS.get(name, 1), 1, config=config) for name, config in TOPICS.items()]
    for future in admin.create_topics(topics).values():
        future.result(30)
    for number, codec in enumerate(CODECS):
        write(bootstrap, "codecs", codec, first_ms=FIRST_MS + 10_000 * number)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for number in range(300):
        value = None if number % 7 == 3 else b"v%d" % number
        producer.produce("compacted", value, b"k%d" % (number % 20), timestamp=FIRST_MS + number)
        if number % 10 == 0:
            producer.flush()
    producer.flush()
    _run_transactions(bootstrap)
    group = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})
    offsets = [confluent_kafka.TopicPartition("codecs", index, 7 + index, "a note") for index in range(2)]
    group.commit(offsets=offsets, asynchronous=False)
    group.close()
    return _leave_open(bootstrap)


def write(bootstrap: str, topic: str, codec: str, *, first_ms: int) -> None:
    settings = {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50, "enable.idempotence": True}
    producer = confluent_kafka.Producer(settings)
    for number in range(60):
        key = None if number % 5 == 0 else b"key-%d" % number
        headers = [("codec", codec.encode()), ("empty", None)] if number % 3 == 0 else None
        value = f"{codec} {number} ".encode() * 10
        producer.produce(topic, value, key, partition=number % 2, timestamp=first_ms + 100 * number, headers=headers)
        if number % 20 == 19:
            producer.flush()
    assert producer.flush(30) == 0


def _run_transactions(bootstrap: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": MOVER})
    producer.init_transactions(30)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "movers"})
    for number in range(6):
        producer.begin_transaction()
        for each in range(5):
            producer.produce("transactional", b"%d-%d" % (number, each), b"k", timestamp=FIRST_MS + number)
        producer.flush()
        offsets = [confluent_kafka.TopicPartition("codecs", 0, number)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
        (producer.abort_transaction if number % 3 == 2 else producer.commit_transaction)(30)
    consumer.close()


def _leave_open(bootstrap: str) -> confluent_kafka.Producer:
    settings = {"bootstrap.servers": bootstrap, "transactional.id": LEFT_OPEN, "transaction.timeout.ms": 900_000}
    producer = confluent_kafka.Producer({**settings, "log_level": 0, "error_cb": lambda error: None})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("open", b"never committed", b"k", timestamp=FIRST_MS)
    producer.flush()
    return producer


def wait_until_compacted(directory: Path) -> None:
    """Until the cleaner has been through all of the topic but its last segment, and has noted that down."""

    def is_done() -> bool:
        last = max(path.stem for path in (directory / "compacted-0").glob("*.log"))
        checkpoint = directory / "cleaner-offset-checkpoint"
        return checkpoint.exists() and f"compacted 0 {int(last)}\n" in checkpoint.read_text()

    repeat_until(is_done, lambda: time.sleep(0.1))


def observe(bootstrap: str) -> dict[str, Any]:
    """Records, offsets, offsets by time, groups, transactions, ids and settings of topics."""
    seen: dict[str, Any] = {}
    _wait_for_leaders(bootstrap)
    for isolation in ("read_uncommitted", "read_committed"):
        for topic in TOPICS:
            for index in range(PARTITIONS.get(topic, 1)):
                seen[f"{isolation} {topic} {index}"] = _records(bootstrap, topic, index, isolation)
    # Not of the compacted one: a segment that compaction has emptied is as young to Kafka as its file, and it finds
    # nothing there instead of looking into the next.
    timed = [topic for topic in TOPICS if topic != "compacted"]
    partitions = [TopicPartition(topic, index) for topic in timed for index in range(PARTITIONS.get(topic, 1))]
    with ottla.Admin(bootstrap_servers=bootstrap) as admin:
        for asked_ms in (FIRST_MS - 1, FIRST_MS + 150, FIRST_MS + 12_345, FIRST_MS + 10**9):
            found = admin.list_offsets(dict.fromkeys(partitions, asked_ms))
            seen[f"at {asked_ms - FIRST_MS}"] = {str(tp): (found[tp].offset, found[tp].timestamp) for tp in partitions}
        groups = admin.list_group_offsets(GROUPS)
        seen["groups"] = {
            group: sorted((str(tp), at.offset, at.metadata) for tp, at in groups[group].items()) for group in GROUPS
        }
        described = admin.describe_transactions([MOVER, LEFT_OPEN])
        seen["transactions"] = {
            name: (found.state, found.producer_id, sorted(map(str, found.partitions)))
            for name, found in described.items()
        }
        topics = admin.describe_topics(list(TOPICS))
        seen["topic ids"] = {name: str(topics[name].topic_id) for name in TOPICS}
    seen["settings"] = {topic: _settings(bootstrap, topic) for topic in TOPICS}
    return seen


def _wait_for_leaders(bootstrap: str) -> None:
    """A broker answers before its controller has told it of all it leads."""
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def are_led() -> bool:
        known = admin.list_topics(timeout=30).topics
        partitions = [each for topic in TOPICS if topic in known for each in known[topic].partitions.values()]
        return len(partitions) == len(TOPICS) + 1 and all(each.leader >= 0 for each in partitions)

    repeat_until(are_led)


def _records(bootstrap: str, topic: str, index: int, isolation: str) -> list[Any]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "observers",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    found: list[Any] = []
    try:
        first, end = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, index), timeout=30)
        consumer.assign([confluent_kafka.TopicPartition(topic, index, first)])
        found.append((first, end))
        while True:
            message = consumer.poll(30)
            assert message is not None, f"{topic}-{index} does not end"
            error = message.error()
            if error is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                return found
            found.append(
                (message.offset(), message.timestamp(), message.key(), message.value(), message.headers() or [])
            )
    finally:
        consumer.close()


def _settings(bootstrap: str, topic: str) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    described = admin.describe_configs([resource])[resource].result(30)
    return {name: entry.value for name, entry in described.items() if name in TOPICS[topic]}
