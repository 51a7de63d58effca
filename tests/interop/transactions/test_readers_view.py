"""What readers are shown of open, committed and aborted transactions, also after restarts."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition

from tests.broker_process import BrokerProcess
from tests.integration.calls import batch, create_topic, produce
from tests.interop.peers.confluent import consumer, poll_messages
from tests.interop.peers.peer import LONG_WAIT_MS, SHORT_POLL_MS
from tests.interop.transactions.conftest import QUICK_TRANSACTIONS
from tests.interop.transactions.raw_producer import (
    END_NEW,
    PRODUCE_NEW,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    RawProducer,
    end_offset,
    fetch,
    last_stable_offset,
    until,
)
from tests.interop.transactions.readers import read_all, read_values
from tests.raw_client import RawClient

pytestmark = pytest.mark.interop

LATEST, AT_A_TIME = -1, 1_600_000_000_000


def aborted(client: RawClient, topic: str, offset: int = 0) -> list[tuple[int, int]]:
    listed = fetch(client, topic, offset).aborted_transactions or []
    return [(entry.producer_id, entry.first_offset) for entry in listed]


def ended(client: RawClient, topic: str, offset: int) -> None:
    until(lambda: last_stable_offset(client, topic), lambda found: found == offset)


def test_an_open_transaction_holds_back_everything_after_its_first_record(
    txn_broker: BrokerProcess, raw: RawClient, new_topic: str
) -> None:
    create_topic(raw, new_topic)
    assert produce(raw, new_topic, bytes(batch(b"before"))).error_code == 0
    producer = RawProducer(raw, new_topic).init()
    producer.produce(new_topic, b"open", version=PRODUCE_NEW)
    produce(raw, new_topic, bytes(batch(b"after")))
    shown = fetch(raw, new_topic)
    assert (shown.high_watermark, shown.last_stable_offset) == (3, 1)
    assert end_offset(raw, new_topic, isolation_level=READ_COMMITTED) == 1
    assert end_offset(raw, new_topic, isolation_level=READ_UNCOMMITTED) == 3
    assert read_values(txn_broker.bootstrap, new_topic) == [b"before"]
    assert read_values(txn_broker.bootstrap, new_topic, "read_uncommitted") == [b"before", b"open", b"after"]
    producer.end(commit=True, version=END_NEW)
    ended(raw, new_topic, 4)
    assert end_offset(raw, new_topic, isolation_level=READ_COMMITTED) == 4
    assert read_values(txn_broker.bootstrap, new_topic) == [b"before", b"open", b"after"]
    assert aborted(raw, new_topic) == []


def test_the_time_of_a_record_in_an_open_transaction_is_not_found(raw: RawClient, new_topic: str) -> None:
    create_topic(raw, new_topic)
    producer = RawProducer(raw, new_topic).init()
    producer.produce(new_topic, b"open", version=PRODUCE_NEW)
    assert end_offset(raw, new_topic, isolation_level=READ_COMMITTED, timestamp=AT_A_TIME) == -1
    assert end_offset(raw, new_topic, isolation_level=READ_UNCOMMITTED, timestamp=AT_A_TIME) == 0
    producer.end(commit=True, version=END_NEW)
    ended(raw, new_topic, 2)
    assert end_offset(raw, new_topic, isolation_level=READ_COMMITTED, timestamp=AT_A_TIME) == 0


def test_a_fetch_lists_the_aborted_transactions_it_runs_through(
    txn_broker: BrokerProcess, raw: RawClient, new_topic: str
) -> None:
    create_topic(raw, new_topic)
    one, two, three = (RawProducer(raw, f"{new_topic}-{n}").init() for n in range(3))
    for producer, value in ((one, b"1a"), (two, b"2a"), (one, b"1b"), (three, b"3a")):
        assert producer.produce(new_topic, value, version=PRODUCE_NEW).error_code == 0
    one_id, three_id = one.producer_id, three.producer_id
    one.end(commit=False, version=END_NEW)
    until(lambda: fetch(raw, new_topic).high_watermark, lambda found: found == 5)
    assert last_stable_offset(raw, new_topic) == 1
    two.end(commit=True, version=END_NEW)
    until(lambda: last_stable_offset(raw, new_topic), lambda found: found == 3)
    three.end(commit=False, version=END_NEW)
    ended(raw, new_topic, 7)
    assert aborted(raw, new_topic) == [(one_id, 0), (three_id, 3)]
    assert aborted(raw, new_topic, 5) == [(three_id, 3)]
    assert aborted(raw, new_topic, 7) == []
    assert fetch(raw, new_topic, isolation_level=READ_UNCOMMITTED).aborted_transactions is None
    assert read_values(txn_broker.bootstrap, new_topic) == [b"2a"]
    assert read_values(txn_broker.bootstrap, new_topic, "read_uncommitted") == [b"1a", b"2a", b"1b", b"3a"]


def test_a_reader_that_waits_is_woken_by_the_marker(raw: RawClient, txn_broker: BrokerProcess, new_topic: str) -> None:
    create_topic(raw, new_topic)
    producer = RawProducer(raw, new_topic).init()
    producer.produce(new_topic, b"open", version=PRODUCE_NEW)
    reader = consumer(txn_broker.bootstrap, isolation_level="read_committed", fetch_wait_max_ms=LONG_WAIT_MS)
    reader.assign([TopicPartition(new_topic, 0, 0)])
    try:
        assert reader.poll(SHORT_POLL_MS / 1000) is None
        producer.end(commit=True, version=END_NEW)
        assert [message.value() for message in poll_messages(reader, 1)] == [b"open"]
    finally:
        reader.close()


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_transactions_survive_a_restart(own_broker: BrokerProcess, new_topic: str, ending: str) -> None:
    """Those that were open go on with their producers, and what was aborted stays aborted."""
    own_broker.overrides |= QUICK_TRANSACTIONS
    own_broker.start()
    with RawClient(own_broker.port) as raw:
        create_topic(raw, new_topic, partitions=2)
        gone = RawProducer(raw, "gone").init()
        gone.produce(new_topic, b"aborted", version=PRODUCE_NEW)
        gone_id = gone.producer_id
        gone.end(commit=False, version=END_NEW)
        ended(raw, new_topic, 2)
        old, new = RawProducer(raw, "old").init(), RawProducer(raw, "new").init()
        assert old.add(new_topic, [0, 1]) == [0, 0]
        assert old.produce(new_topic, b"old 1").error_code == 0
        assert new.produce(new_topic, b"new 1", version=PRODUCE_NEW).error_code == 0
        produce(raw, new_topic, bytes(batch(b"held back")))
    getattr(own_broker, ending)()
    own_broker.start()
    with RawClient(own_broker.port) as raw:
        assert aborted(raw, new_topic) == [(gone_id, 0)]
        assert last_stable_offset(raw, new_topic) == 2
        assert read_values(own_broker.bootstrap, new_topic) == []
        old.client = new.client = raw
        assert old.produce(new_topic, b"old 2").error_code == 0
        assert old.produce(new_topic, b"old 3", partition=1).error_code == 0
        assert new.produce(new_topic, b"new 2", version=PRODUCE_NEW).error_code == 0
        new.end(commit=False, version=END_NEW)
        old.end(commit=True)
        old.has_ended(commit=True)
        until(lambda: fetch(raw, new_topic).high_watermark, lambda found: found == 9)
        ended(raw, new_topic, 9)
    found = read_all(own_broker.bootstrap, new_topic, (0, 1))
    assert [value for _, value in found[0]] == [b"old 1", b"held back", b"old 2"]
    assert [value for _, value in found[1]] == [b"old 3"]
    getattr(own_broker, ending)()
    own_broker.start()
    assert read_all(own_broker.bootstrap, new_topic, (0, 1)) == found
    assert own_broker.tracebacks() == []
