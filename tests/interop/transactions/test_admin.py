"""Transactions as administrators see them, through kafka-python; confluent-kafka has no such calls."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import AbortTransactionSpec
from kafka.errors import TransactionalIdNotFoundError

from tests.broker_process import BrokerProcess
from tests.integration.calls import create_topic
from tests.interop.transactions.raw_producer import END_NEW, PRODUCE_NEW, RawProducer, last_stable_offset, until
from tests.raw_client import RawClient

pytestmark = pytest.mark.interop


@pytest.fixture
def admin(txn_broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=txn_broker.bootstrap)
    yield client
    client.close()


def test_transactions_are_listed_and_described(admin: KafkaAdminClient, raw: RawClient, new_topic: str) -> None:
    create_topic(raw, new_topic, partitions=2)
    producer = RawProducer(raw, new_topic, timeout_ms=50_000).init()
    for partition in (0, 1):
        assert producer.produce(new_topic, b"x", partition=partition, version=PRODUCE_NEW).error_code == 0

    def listed(**filters: object) -> dict[str, object]:
        found = admin.list_transactions(**filters)
        return {one.transactional_id: one for of_broker in found.values() for one in of_broker}

    assert new_topic in listed(state_filters=["Ongoing"])
    assert new_topic not in listed(state_filters=["CompleteCommit"])
    assert set(listed(producer_id_filters=[producer.producer_id])) == {new_topic}
    assert new_topic in listed(duration_filter_ms=0)
    assert new_topic not in listed(duration_filter_ms=60_000)
    described = admin.describe_transactions([new_topic])[new_topic]
    assert (described.producer_id, described.producer_epoch) == producer.identity
    assert described.transaction_timeout_ms == 50_000
    assert described.transaction_start_time_ms > 1_700_000_000_000
    assert set(described.topic_partitions) == {TopicPartition(new_topic, 0), TopicPartition(new_topic, 1)}
    producer.end(commit=True, version=END_NEW)
    until(lambda: listed(state_filters=["CompleteCommit"]), lambda found: new_topic in found)
    assert admin.find_hanging_transactions() == []
    with pytest.raises(TransactionalIdNotFoundError):
        admin.describe_transactions([f"{new_topic}-none"])


def test_a_hanging_transaction_is_found_on_its_partition_and_aborted(
    admin: KafkaAdminClient, raw: RawClient, new_topic: str
) -> None:
    create_topic(raw, new_topic)
    producer = RawProducer(raw, new_topic).init()
    producer.produce(new_topic, b"a", b"b", version=PRODUCE_NEW)
    place = TopicPartition(new_topic, 0)
    (active,) = admin.describe_producers([place])[place].active_producers
    assert (active.producer_id, active.producer_epoch) == producer.identity
    assert (active.last_sequence, active.current_transaction_start_offset) == (1, 0)
    admin.abort_transaction(
        AbortTransactionSpec(place, producer_id=active.producer_id, producer_epoch=active.producer_epoch)
    )
    assert last_stable_offset(raw, new_topic) == 3
    (active,) = admin.describe_producers([place])[place].active_producers
    assert active.current_transaction_start_offset == -1
