"""Requests that come too late, twice, or without leave: none of them may touch a transaction that is not theirs."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tests.broker_process import BrokerProcess
from tests.integration.calls import create_topic, produce
from tests.interop.transactions.raw_producer import (
    END_NEW,
    END_OLD,
    PRODUCE_NEW,
    PRODUCE_OLD,
    READ_UNCOMMITTED,
    RawProducer,
    fetch,
    last_stable_offset,
    until,
)
from tests.interop.transactions.readers import read_values
from tests.raw_client import RawClient

pytestmark = pytest.mark.interop

ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE
FENCED = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED}


def test_a_delayed_batch_of_an_aborted_transaction_finds_no_transaction(
    txn_broker: BrokerProcess, raw: RawClient, new_topic: str
) -> None:
    create_topic(raw, new_topic)
    producer = RawProducer(raw, new_topic).init()
    assert producer.add(new_topic) == [0]
    assert producer.produce(new_topic, b"aborted").error_code == 0
    late = producer.batch(new_topic, 0, b"late")
    producer.end(commit=False)
    producer.has_ended(commit=False)
    for version, code in ((9, ErrorCode.INVALID_TXN_STATE), (PRODUCE_OLD, ABORTABLE)):
        assert producer.send_batch(new_topic, 0, late, version=version).error_code == code
    assert last_stable_offset(raw, new_topic) == fetch(raw, new_topic).high_watermark == 2
    assert read_values(txn_broker.bootstrap, new_topic) == []


def test_a_delayed_batch_does_not_land_in_the_next_transaction_of_a_client_that_begins_anew(
    txn_broker: BrokerProcess, raw: RawClient, new_topic: str
) -> None:
    """Up to Produce 11 a client that lost sight of a batch asks for a new epoch (KIP-360); that shuts the batch out."""
    create_topic(raw, new_topic)
    producer = RawProducer(raw, new_topic).init()
    producer.add(new_topic)
    producer.produce(new_topic, b"aborted")
    late = producer.batch(new_topic, 0, b"late")
    producer.end(commit=False)
    producer.init(current=producer.identity)
    assert producer.add(new_topic) == [0]
    assert producer.send_batch(new_topic, 0, late, version=PRODUCE_OLD).error_code in FENCED
    assert producer.produce(new_topic, b"kept").error_code == 0
    assert producer.send_batch(new_topic, 0, late, version=PRODUCE_OLD).error_code in FENCED
    producer.end(commit=True)
    producer.has_ended(commit=True)
    assert read_values(txn_broker.bootstrap, new_topic) == [b"kept"]


@pytest.mark.parametrize("commit", [True, False])
def test_with_an_epoch_for_each_transaction_a_delayed_batch_is_always_fenced(
    txn_broker: BrokerProcess, raw: RawClient, new_topic: str, commit: bool
) -> None:
    create_topic(raw, new_topic)
    producer = RawProducer(raw, new_topic).init()
    assert producer.produce(new_topic, b"first", version=PRODUCE_NEW).error_code == 0
    late = producer.batch(new_topic, 0, b"late")
    before = producer.identity
    producer.end(commit=commit, version=END_NEW)
    assert producer.identity == (before[0], before[1] + 1)
    # Until its marker is there, the batch would still come in time for its own transaction.
    until(lambda: last_stable_offset(raw, new_topic), lambda offset: offset == 2)
    assert producer.send_batch(new_topic, 0, late, version=PRODUCE_NEW).error_code in FENCED
    assert producer.produce(new_topic, b"second", version=PRODUCE_NEW).error_code == 0
    assert producer.send_batch(new_topic, 0, late, version=PRODUCE_NEW).error_code in FENCED
    producer.end(commit=True, version=END_NEW)
    until(lambda: last_stable_offset(raw, new_topic), lambda offset: offset == 4)
    assert read_values(txn_broker.bootstrap, new_topic) == ([b"first"] if commit else []) + [b"second"]


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_sent_twice_is_answered_twice(raw: RawClient, new_topic: str, commit: bool) -> None:
    create_topic(raw, new_topic)
    producer = RawProducer(raw, new_topic).init()
    producer.add(new_topic)
    producer.produce(new_topic, b"one")
    for _ in range(3):
        answer = until(
            lambda: producer.ask_end(commit=commit, version=END_OLD),
            lambda got: got.error_code != ErrorCode.CONCURRENT_TRANSACTIONS,
        )
        assert answer.error_code == 0
    assert producer.ask_end(commit=not commit, version=END_OLD).error_code == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("late_commit", [True, False])
def test_a_delayed_end_never_ends_a_later_transaction_when_epochs_are_raised(
    txn_broker: BrokerProcess, raw: RawClient, new_topic: str, late_commit: bool
) -> None:
    create_topic(raw, new_topic)
    producer = RawProducer(raw, new_topic).init()
    producer.produce(new_topic, b"first", version=PRODUCE_NEW)
    old_epoch = producer.epoch
    producer.end(commit=True, version=END_NEW)
    # Before the next transaction begins the same end is recognised, and told the same producer.
    again = until(
        lambda: producer.ask_end(commit=True, version=END_NEW, as_epoch=old_epoch),
        lambda got: got.error_code != ErrorCode.CONCURRENT_TRANSACTIONS,
    )
    assert (again.error_code, (again.producer_id, again.producer_epoch)) == (0, producer.identity)
    assert producer.produce(new_topic, b"second", version=PRODUCE_NEW).error_code == 0
    late = producer.ask_end(commit=late_commit, version=END_NEW, as_epoch=old_epoch)
    assert late.error_code == ErrorCode.PRODUCER_FENCED
    assert last_stable_offset(raw, new_topic) == 2
    producer.end(commit=True, version=END_NEW)
    until(lambda: last_stable_offset(raw, new_topic), lambda offset: offset == 4)
    assert read_values(txn_broker.bootstrap, new_topic) == [b"first", b"second"]


@pytest.mark.parametrize("version", [3, 7, 9, PRODUCE_OLD])
def test_a_write_to_a_partition_that_was_not_added_is_refused(raw: RawClient, new_topic: str, version: int) -> None:
    create_topic(raw, new_topic, partitions=2)
    producer = RawProducer(raw, new_topic).init()
    wanted = ABORTABLE if version >= 11 else ErrorCode.INVALID_TXN_STATE
    assert producer.produce(new_topic, b"nowhere", version=version).error_code == wanted
    producer.sequences.clear()
    producer.add(new_topic, [1])
    assert producer.produce(new_topic, b"nowhere", version=version).error_code == wanted
    for isolation_level in (0, 1):
        shown = fetch(raw, new_topic, isolation_level=isolation_level)
        assert (shown.high_watermark, shown.last_stable_offset) == (0, 0)


def test_a_write_in_the_name_of_another_transaction_or_of_none_is_refused(raw: RawClient, new_topic: str) -> None:
    create_topic(raw, new_topic)
    producer = RawProducer(raw, new_topic).init()
    producer.add(new_topic)
    stranger = RawProducer(raw, f"{new_topic}-stranger")
    other = RawProducer(raw, f"{new_topic}-other").init()
    for impostor in (stranger, other):
        impostor.take(producer.producer_id, producer.epoch)
        for version in (PRODUCE_OLD, PRODUCE_NEW):
            code = impostor.produce(new_topic, b"x", version=version).error_code
            assert code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        impostor.sequences.clear()
    refused = produce(raw, new_topic, producer.batch(new_topic, 0, b"x"))
    assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert fetch(raw, new_topic, isolation_level=READ_UNCOMMITTED).high_watermark == 0


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_verify_partitions_and_add_them_for_many_transactions(
    raw: RawClient, new_topic: str, version: int
) -> None:
    create_topic(raw, new_topic, partitions=2)
    producers = [RawProducer(raw, f"{new_topic}-{number}").init() for number in range(2)]

    def ask(*, verify_only: bool, partitions: list[int]) -> list[list[int]]:
        asked = [
            AddPartitionsToTxnTransaction(
                transactional_id=producer.transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                verify_only=verify_only,
                topics=[AddPartitionsToTxnTopic(name=new_topic, partitions=partitions)],
            )
            for producer in producers
        ]
        response = raw.call(AddPartitionsToTxnRequest(transactions=asked), version)
        assert isinstance(response, AddPartitionsToTxnResponse) and response.error_code == 0
        return [
            [part.partition_error_code for part in result.topic_results[0].results_by_partition]
            for result in response.results_by_transaction
        ]

    not_in_it = ABORTABLE if version >= 5 else ErrorCode.INVALID_TXN_STATE
    assert ask(verify_only=True, partitions=[0, 1]) == [[not_in_it] * 2] * 2
    assert ask(verify_only=False, partitions=[1]) == [[0]] * 2
    assert ask(verify_only=True, partitions=[0, 1]) == [[not_in_it, 0]] * 2
    producers[0].end(commit=True, version=END_NEW)
    producers[1].epoch += 1
    assert ask(verify_only=True, partitions=[1]) == [[not_in_it], [ErrorCode.PRODUCER_FENCED]]


def test_a_zombie_is_shut_out_by_its_successor(txn_broker: BrokerProcess, raw: RawClient, new_topic: str) -> None:
    create_topic(raw, new_topic)
    zombie = RawProducer(raw, new_topic).init()
    zombie.add(new_topic)
    zombie.produce(new_topic, b"of the zombie")
    successor = RawProducer(raw, new_topic).init()
    assert successor.producer_id == zombie.producer_id and successor.epoch > zombie.epoch
    assert zombie.produce(new_topic, b"late").error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert zombie.add(new_topic) == [ErrorCode.PRODUCER_FENCED]
    assert zombie.add(new_topic, version=1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert zombie.add_offsets(new_topic) == ErrorCode.PRODUCER_FENCED
    for commit in (True, False):
        assert zombie.ask_end(commit=commit, version=END_OLD).error_code == ErrorCode.PRODUCER_FENCED
        assert zombie.ask_end(commit=commit, version=1).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert zombie.ask_end(commit=commit, version=END_NEW).error_code == ErrorCode.PRODUCER_FENCED
    assert zombie.ask_init(current=zombie.identity).error_code == ErrorCode.PRODUCER_FENCED
    assert zombie.ask_init(version=3, current=zombie.identity).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    successor.add(new_topic)
    assert successor.produce(new_topic, b"of the successor").error_code == 0
    successor.end(commit=True)
    successor.has_ended(commit=True)
    assert read_values(txn_broker.bootstrap, new_topic) == [b"of the successor"]


def test_a_batch_sent_twice_is_stored_once(txn_broker: BrokerProcess, raw: RawClient, new_topic: str) -> None:
    create_topic(raw, new_topic)
    producer = RawProducer(raw, new_topic).init()
    batch = producer.batch(new_topic, 0, b"once")
    answers = [producer.send_batch(new_topic, 0, batch, version=PRODUCE_NEW) for _ in range(3)]
    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, 0)] * 3
    producer.end(commit=True, version=END_NEW)
    until(lambda: last_stable_offset(raw, new_topic), lambda offset: offset == 2)
    assert read_values(txn_broker.bootstrap, new_topic) == [b"once"]
