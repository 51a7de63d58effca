"""A consumer group under faults: members come and go, and what was read and committed is remembered."""

from __future__ import annotations

import threading
from collections import defaultdict
from contextlib import suppress

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.cluster.chaos.cluster import short_sleep
from tests.waiting import PATIENCE_S, join, repeat_until

_READ_AT_ONCE = 500


class GroupLoad:
    """Members read one topic and commit what they have read; no confirmed commit may ever be forgotten."""

    def __init__(self, servers: str, topic: str, partitions: int, *, members: int) -> None:
        self._servers = servers
        self._topic = topic
        self._partitions = range(partitions)
        self._lock = threading.Lock()
        self._read: defaultdict[int, bytearray] = defaultdict(bytearray)
        """For each partition one byte per offset: how often it was read, as far as a byte counts."""
        self._confirmed: dict[int, int] = dict.fromkeys(self._partitions, 0)
        self._members: list[_Member] = []
        self._number = 0
        self.rebalances = 0
        for _ in range(members):
            self._join_one()

    def _join_one(self) -> None:
        self._members.append(_Member(self, f"member {self._number}", self._servers, self._topic))
        self._number += 1

    def change_a_member(self) -> None:
        """The one that has been there for longest leaves, and another one joins."""
        leaving = self._members.pop(0)
        self._join_one()
        leaving.leave()

    def note_read(self, messages: list[confluent_kafka.Message]) -> None:
        with self._lock:
            for message in messages:
                read, offset = self._read[message.partition()], message.offset()
                if offset >= len(read):
                    read.extend(bytes(offset + 1 - len(read)))
                read[offset] = min(read[offset] + 1, 255)

    def note_confirmed(self, committed: list[TopicPartition]) -> None:
        with self._lock:
            for each in committed:
                self._confirmed[each.partition] = max(self._confirmed[each.partition], each.offset)

    def note_rebalance(self) -> None:
        with self._lock:
            self.rebalances += 1

    def finish(self) -> str:
        """When nobody writes any more: waits until all is read and committed, and judges. Returns a few words."""
        ends = self._ends()
        repeat_until(lambda: self._confirmed == ends, short_sleep)
        for member in self._members:
            member.leave()
        stored = self._stored()
        assert stored == ends, f"{ends} was committed and confirmed, {stored} is what the coordinator has"
        for index, end in ends.items():
            read = self._read[index]
            missing = [offset for offset in range(end) if offset >= len(read) or not read[offset]]
            assert not missing, f"the group never read {missing[:5]} of {self._topic}-{index}, up to {end}"
        again = sum(times > 1 for read in self._read.values() for times in read)
        return f"{sum(ends.values())} records read by a group with {self.rebalances} assignments, {again} read again"

    def _ends(self) -> dict[int, int]:
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": "ends", "log_level": 0})
        try:
            return {index: self._end(consumer, index) for index in self._partitions}
        finally:
            consumer.close()

    def _end(self, consumer: Consumer, index: int) -> int:
        return int(consumer.get_watermark_offsets(TopicPartition(self._topic, index), timeout=PATIENCE_S)[1])

    def _stored(self) -> dict[int, int]:
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": "group", "log_level": 0})
        try:
            asked = [TopicPartition(self._topic, index) for index in self._partitions]
            return {each.partition: each.offset for each in consumer.committed(asked, timeout=PATIENCE_S)}
        finally:
            consumer.close()


class _Member:
    def __init__(self, load: GroupLoad, name: str, servers: str, topic: str) -> None:
        self._load = load
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "client.id": name,
                "group.id": "group",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 500,
                "topic.metadata.refresh.interval.ms": 1000,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([topic], on_assign=lambda *_: load.note_rebalance())
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            messages = [message for message in self._consumer.consume(_READ_AT_ONCE, 0.2) if message.error() is None]
            self._load.note_read(messages)
            # Refused or unanswered: who has the partition next reads it again. What is read later commits it, too; so
            # does an empty round, for positions stay.
            with suppress(KafkaException):
                committed = self._consumer.commit(asynchronous=False)
                self._load.note_confirmed([each for each in committed or [] if each.error is None])
        self._consumer.close()

    def leave(self) -> None:
        self._stop.set()
        join(self._thread)
