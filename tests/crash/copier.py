"""Copies one topic to another in transactions: partition by partition, with the positions it has read to.

python -m tests.crash.copier BOOTSTRAP SOURCE TARGET GROUP

It runs until it is killed, or ends when its producer cannot go on. Whoever starts it again gets no record twice.
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer

from tests.crash.transaction_load import PATIENCE_S, QUICK_TO_RETURN, GaveUpError, persist

_BATCH = 200
_CALL_S = 5.0


def copy(bootstrap: str, source: str, target: str, group: str) -> None:
    shared = {
        "bootstrap.servers": bootstrap,
        "error_cb": lambda error: None,
        **QUICK_TO_RETURN,
    }
    producer = Producer({**shared, "transactional.id": group, "transaction.timeout.ms": 120_000, "linger.ms": 0})
    # Before a position is asked for: this ends what a forerunner has left open, and shuts it out.
    persist(lambda: producer.init_transactions(_CALL_S), time.monotonic() + PATIENCE_S)
    consumer = Consumer(
        {
            **shared,
            "group.id": group,
            "group.instance.id": "the only one",
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 500,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.subscribe([source])
    while True:
        messages = [message for message in consumer.consume(_BATCH, timeout=0.05) if _is_record(message)]
        if messages and not _copy_batch(producer, consumer, messages, target):
            _rewind(consumer)


def _copy_batch(producer: Producer, consumer: Consumer, messages: list[Message], target: str) -> bool:
    """Whether it was committed. If it was not, nothing of it is left."""
    deadline_s = time.monotonic() + PATIENCE_S
    try:
        producer.begin_transaction()
        for message in messages:
            partition = message.partition()
            assert partition is not None
            producer.produce(target, message.value(), partition=partition)
        positions = consumer.position(consumer.assignment())
        persist(
            lambda: producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), _CALL_S),
            deadline_s,
        )
        persist(lambda: producer.commit_transaction(_CALL_S), deadline_s)
    except KafkaException as e:
        error: KafkaError = e.args[0]
        if error.fatal():
            raise
        persist(lambda: producer.abort_transaction(_CALL_S), deadline_s)
        return False
    return True


def _is_record(message: Message) -> bool:
    error = message.error()
    if error is not None and error.fatal():
        raise KafkaException(error)
    return error is None


def _rewind(consumer: Consumer) -> None:
    """Back to what is committed, once the broker says what that is."""
    places = None
    deadline_s = time.monotonic() + PATIENCE_S
    while places is None:
        try:
            places = consumer.committed(consumer.assignment(), timeout=_CALL_S)
        except KafkaException as e:
            if e.args[0].fatal() or time.monotonic() > deadline_s:
                raise
    for place in places:
        if place.offset < 0:
            place.offset = OFFSET_BEGINNING
        consumer.seek(place)


if __name__ == "__main__":
    try:
        copy(*sys.argv[1:])
    except (KafkaException, GaveUpError) as e:
        sys.exit(f"the copier gives up: {e}")
