"""Sends records that were given up to their dead-letter topic, with a producer that is made when there is one."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Self

from ottla.base.errors import KafkaError
from ottla.base.options import MAX_LONG
from ottla.client.aio.producer.lasting_producer import LastingProducer
from ottla.client.aio.producer.producer import Producer
from ottla.client.core.processing.dead_letters import DeadLetter, check_template, dead_letter, dead_letter_topics
from ottla.client.core.processing.failures import place_of, reason_of
from ottla.client.core.processing.parallel import RawRecord
from ottla.client.core.settings import CLIENT_OPTIONS
from ottla.client.errors import ProcessingError, RecordTooLargeError

log = logging.getLogger(__name__)

_LARGER_TOPIC = ". Give that topic a max.message.bytes that is no less than that of the one it came from"
_SHARED_SETTINGS = frozenset(option.name for option in CLIENT_OPTIONS)


class LetterProducer(Producer):
    """Takes records of any size: what was in one topic must not be kept from another by max.request.size."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        # The handlers that run at once bound what waits here, and they have it in memory anyway.
        super().__init__({**settings, "buffer.memory": MAX_LONG})

    async def start(self) -> Self:
        await super().start()
        assert self._intake is not None
        self._intake.take_any_size()
        return self


class DeadLetters:
    """`template` names the topic; with None there is nowhere to send to. A producer that was given is not closed."""

    def __init__(
        self,
        template: str | None,
        group_id: str,
        settings: Mapping[str, object],
        producer: Producer | LastingProducer | None,
    ) -> None:
        if template is not None:
            check_template(template)
        self._template = template
        self._group_id = group_id
        shared = {name: value for name, value in settings.items() if name in _SHARED_SETTINGS}
        self._own_producer = LastingProducer(lambda: LetterProducer(shared))
        self._given_producer = producer

    @property
    def topics(self) -> re.Pattern[str] | None:
        """The names of all topics that dead letters may go to."""
        return None if self._template is None else dead_letter_topics(self._template)

    async def take(self, record: RawRecord, failure: BaseException, *, attempts: int) -> str | None:
        """Where the record is stored then; None if that may succeed later. ProcessingError if it cannot be."""
        if self._template is None:
            raise ProcessingError(
                f"the handler failed {attempts} times for offset {record.offset} ({reason_of(failure)}), and there is"
                " no dead-letter topic; correct the handler, or set dead_letter",
                topic_partition=record.topic_partition,
                offset=record.offset,
            ) from failure
        where = place_of(record)
        letter = dead_letter(record, self._template, error=failure, attempts=attempts, group_id=self._group_id)
        try:
            await self._send_what_fits(letter, where)
        except KafkaError as e:
            if not e.retriable:
                advice = _LARGER_TOPIC if isinstance(e, RecordTooLargeError) else ""
                raise ProcessingError(
                    f"offset {record.offset} could not be sent to its dead-letter topic {letter.topic}: {e}{advice}",
                    topic_partition=record.topic_partition,
                    offset=record.offset,
                ) from e
            log.error("%s cannot be written to, and will be tried again: %s", letter.topic, e)
            return None
        return letter.topic

    async def _send_what_fits(self, letter: DeadLetter, where: str) -> None:
        """Our own headers must not be what makes a record too large."""
        for shorter in letter.shorter():
            try:
                return await self._send(letter)
            except RecordTooLargeError as e:
                log.warning("%s goes to %s with fewer headers of its origin: %s", where, letter.topic, e)
                letter = shorter
        await self._send(letter)

    async def _send(self, letter: DeadLetter) -> None:
        producer = await self._producer()
        try:
            await _send_with(producer, letter)
        except KafkaError:
            successor = await self._producer()
            if successor is producer:
                raise
            await _send_with(successor, letter)

    async def _producer(self) -> Producer:
        producer = self._given_producer or self._own_producer
        return producer if isinstance(producer, Producer) else await producer.get()

    async def close(self) -> None:
        # What is not stored yet belongs to records that were given up, and will be processed again.
        await self._own_producer.close(timeout=0)


async def _send_with(producer: Producer, letter: DeadLetter) -> None:
    await producer.send_and_wait(
        letter.topic, letter.value, letter.key, headers=letter.headers, timestamp_ms=letter.timestamp_ms
    )
