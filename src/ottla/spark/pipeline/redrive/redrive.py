"""Sends dead letters back: those that are meant, those only that were not sent before, and each of them once.

Letters and the note that they were sent go into one transaction. A redrive that is killed leaves a transaction that the
next one aborts when it takes over the transactional id; what was committed before is noted, so that it goes on there.
Two at a time cannot be: the later one fences the earlier one, before it reads what was sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ottla.base.errors import ErrorCode
from ottla.base.options import OptionSet
from ottla.base.types import TopicPartition
from ottla.client.core.admin.options import ADMIN_OPTIONS
from ottla.client.core.admin.types import NewTopic, OffsetSpec
from ottla.client.core.consumer.options import CONSUMER_OPTIONS
from ottla.client.core.consumer.record import ConsumerRecord
from ottla.client.core.producer.options import PRODUCER_OPTIONS
from ottla.client.errors import ProducerFencedError
from ottla.client.sync import Admin, Consumer, Producer
from ottla.spark.connections import FAIL_FAST
from ottla.spark.own_names import REDRIVEN_PREFIX
from ottla.spark.pipeline.redrive.letters import Letter, LetterFilter, LetterSummary, parse_letter
from ottla.spark.pipeline.redrive.sent_letters import SentLetters
from ottla.spark.pipeline.redrive.targets import RedriveError, Targets
from ottla.spark.topic_offsets import existing

if TYPE_CHECKING:
    from ottla.spark.connections import BytesConsumer

LETTERS_PER_TRANSACTION = 5_000
BYTES_PER_TRANSACTION = 8 << 20
_POLL_S = 0.2
_STUCK_S = 60.0
_MEMORY = {"cleanup.policy": "compact"}
_ALREADY_THERE = ErrorCode.TOPIC_ALREADY_EXISTS


@dataclass(frozen=True)
class LetterBox:
    """The dead letters of one source."""

    topic: str
    source: str
    """As letters name it."""
    settings: Mapping[str, str] = field(repr=False)
    """Of clients. May hold passwords."""
    redrive_topic: str | None = None
    """A topic that only this source reads."""
    new_topic: NewTopic | None = None
    """How it is to be made if it is not there."""

    @property
    def memory_topic(self) -> str:
        return f"{REDRIVEN_PREFIX}{self.topic}"

    def known(self, options: OptionSet) -> dict[str, str]:
        return {**FAIL_FAST, **{name: text for name, text in self.settings.items() if name in options}}


@dataclass
class Outcome:
    summary: LetterSummary = field(default_factory=LetterSummary)
    targets: list[str] = field(default_factory=list)
    compacted: list[str] = field(default_factory=list)
    retimed: int = 0
    """Letters so old that they were sent under the time of sending."""


class _Found(NamedTuple):
    """A letter, and the offsets in its topic that end with it; those before its own hold no letters."""

    letter: Letter
    partition: int
    first_offset: int
    last_offset: int


@dataclass
class Redrive:
    box: LetterBox
    chosen: LetterFilter
    to_topic: str | None = None
    """Where all of them go; None: each to the partition it came from."""
    limit: int | None = None
    on_progress: Callable[[int], None] = lambda letters: None
    """Told how many are sent, after each transaction."""
    letters_per_transaction: int = LETTERS_PER_TRANSACTION

    def survey(self) -> Outcome:
        """What `send` would do now. Changes nothing."""
        with self._admin() as admin, self._consumer() as consumer:
            outcome, targets = Outcome(), self._targets(admin, self.box.new_topic)
            for found in self._waiting(admin, consumer, self._read_memory(admin, consumer)):
                self._take(found.letter, outcome, targets)
        return outcome

    def send(self) -> Outcome:
        name = f"ottla-redrive-{self.box.topic}"
        settings = {**self.box.known(PRODUCER_OPTIONS), "transactional.id": name}
        with self._admin() as admin, self._consumer() as consumer, Producer(settings) as producer:
            self._make_topics(admin)
            try:
                producer.init_transactions()
                return self._send_all(admin, consumer, producer)
            except ProducerFencedError as e:
                raise RedriveError(
                    f"another redrive of {self.box.topic} has begun, and goes on where this one was stopped"
                ) from e

    def _send_all(self, admin: Admin, consumer: BytesConsumer, producer: Producer) -> Outcome:
        outcome, targets = Outcome(), self._targets(admin)
        sent = self._read_memory(admin, consumer)
        waiting = self._waiting(admin, consumer, sent)
        while portion := self._portion(waiting):
            with producer.transaction():
                for letter, partition, first_offset, last_offset in portion:
                    self._send_one(producer, letter, self._take(letter, outcome, targets))
                    sent.mark(partition, first_offset, last_offset)
                for key, value in sent.take_changes():
                    producer.send(self.box.memory_topic, value, key=key, partition=0)
            self.on_progress(outcome.summary.letters)
        return outcome

    def _portion(self, waiting: Iterator[_Found]) -> list[_Found]:
        portion: list[_Found] = []
        size = 0
        while len(portion) < self.letters_per_transaction and size < BYTES_PER_TRANSACTION:
            found = next(waiting, None)
            if found is None:
                break
            portion.append(found)
            size += found.letter.size
        return portion

    def _take(self, letter: Letter, outcome: Outcome, targets: Targets) -> int | None:
        """Counts a letter, and says under which time it goes."""
        topic = self.to_topic or letter.origin.topic
        targets.check(topic, None if self.to_topic else letter.origin.partition)
        timestamp_ms = targets.timestamp_of(letter, topic)
        outcome.summary.add(letter)
        outcome.retimed += timestamp_ms is None
        outcome.targets, outcome.compacted = targets.topics, targets.compacted
        return timestamp_ms

    def _send_one(self, producer: Producer, letter: Letter, timestamp_ms: int | None) -> None:
        """To its origin as it was. In the topic of a source it keeps the facts: that is no place it could come from."""
        if self.to_topic is None:
            origin = letter.origin
            producer.send(origin.topic, letter.value, letter.key, letter.headers, origin.partition, timestamp_ms)
        else:
            headers = (*letter.headers, *letter.facts)
            producer.send(self.to_topic, letter.value, letter.key, headers, timestamp_ms=timestamp_ms)

    # Reading

    def _waiting(self, admin: Admin, consumer: BytesConsumer, sent: SentLetters) -> Iterator[_Found]:
        """In the order of partitions and offsets. Letters that come meanwhile are left for the next time: some of them
        may be those that were sent back a moment ago."""
        partitions = _partitions(admin, self.box.topic)
        begins = _offsets(admin, partitions, OffsetSpec.EARLIEST)
        ends = _offsets(admin, partitions, OffsetSpec.LATEST)
        count = 0
        for one in partitions:
            before = sent.first_unsent(one.partition, begins[one])
            for record in _read(consumer, one, before, ends[one]):
                letter = None if sent.was_sent(one.partition, record.offset) else parse_letter(record)
                if letter is not None and letter.source == self.box.source and self.chosen.takes(letter):
                    if count == self.limit:
                        return
                    count += 1
                    yield _Found(letter, one.partition, before, record.offset)
                before = record.offset + 1

    def _read_memory(self, admin: Admin, consumer: BytesConsumer) -> SentLetters:
        described = existing(admin.describe_topics([self.box.topic]))
        if self.box.topic not in described:
            raise RedriveError(f"there is no topic {self.box.topic!r} yet: no record was set aside so far")
        sent = SentLetters(described[self.box.topic].topic_id)
        for one in _partitions(admin, self.box.memory_topic):
            begin, end = (_offsets(admin, [one], edge)[one] for edge in (OffsetSpec.EARLIEST, OffsetSpec.LATEST))
            for record in _read(consumer, one, begin, end):
                if record.key is not None and record.value is not None:
                    sent.read(record.key, record.value)
        return sent

    # Clients

    def _targets(self, admin: Admin, to_be_made: NewTopic | None = None) -> Targets:
        return Targets(admin, int(time.time() * 1000), to_be_made)

    def _admin(self) -> Admin:
        return Admin(self.box.known(ADMIN_OPTIONS))

    def _consumer(self) -> BytesConsumer:
        own = {"isolation.level": "read_committed", "auto.offset.reset": "earliest", "enable.auto.commit": "false"}
        settings = self.box.known(CONSUMER_OPTIONS)
        settings.pop("group.id", None)
        return Consumer({**settings, **own})

    def _make_topics(self, admin: Admin) -> None:
        wanted = [NewTopic(self.box.memory_topic, 1, configs=_MEMORY)]
        if self.to_topic is not None and self.box.new_topic is not None:
            wanted.append(self.box.new_topic)
        for error in admin.create_topics(wanted).errors.values():
            if error.code is not _ALREADY_THERE:
                raise error


def _partitions(admin: Admin, topic: str) -> list[TopicPartition]:
    described = existing(admin.describe_topics([topic])).values()
    return sorted(TopicPartition(topic, info.partition) for found in described for info in found.partitions)


def _offsets(admin: Admin, partitions: list[TopicPartition], edge: int) -> dict[TopicPartition, int]:
    found = existing(admin.list_offsets(dict.fromkeys(partitions, edge), read_committed=True))
    return {one: answer.offset for one, answer in found.items()}


def _read(consumer: BytesConsumer, one: TopicPartition, begin: int, end: int) -> Iterator[ConsumerRecord]:
    """What is committed from one offset to another."""
    if begin >= end:
        return
    consumer.assign([one])
    consumer.seek(one, begin)
    moved_s = time.monotonic()
    while (position := consumer.position(one)) < end:
        records = consumer.poll(_POLL_S)
        for record in records:
            if record.offset < end:
                yield record
        if records or consumer.position(one) > position:
            moved_s = time.monotonic()
        elif time.monotonic() > moved_s + _STUCK_S:
            raise RedriveError(f"{one} could not be read beyond offset {position}; is its broker well?")
