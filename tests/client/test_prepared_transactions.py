"""Transactions that one producer prepares and somebody else ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import ottla
from ottla import aio
from ottla.base.errors import ErrorCode
from ottla.client.core.producer.transaction import PreparedTransaction
from tests.broker_process import BrokerProcess
from tests.interop.transactions.readers import read_values
from tests.waiting import run_async

Prepare = Callable[[str, str, list[bytes]], PreparedTransaction]


def prepare(bootstrap: str, topic: str, values: list[bytes]) -> PreparedTransaction:
    with ottla.Producer(bootstrap_servers=bootstrap, transactional_id=f"of-{topic}") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for value in values:
            producer.send(topic, value)
        producer.send_offsets({ottla.TopicPartition(topic, 0): 7}, f"group-{topic}")
        return producer.prepare_transaction()


def prepare_async(bootstrap: str, topic: str, values: list[bytes]) -> PreparedTransaction:
    async def run() -> PreparedTransaction:
        async with aio.Producer(bootstrap_servers=bootstrap, transactional_id=f"of-{topic}") as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            for value in values:
                await producer.send(topic, value)
            return await producer.prepare_transaction()

    return run_async(run())


@pytest.fixture
def admin(broker: BrokerProcess, new_topic: str) -> Iterator[ottla.Admin]:
    with ottla.Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([ottla.NewTopic(new_topic, 1)]).check()
        yield admin


@pytest.mark.parametrize("prepare", [prepare, prepare_async])
def test_a_closed_producers_transaction_is_committed_by_another_process(
    admin: ottla.Admin, broker: BrokerProcess, new_topic: str, prepare: Prepare
) -> None:
    prepared = prepare(broker.bootstrap, new_topic, [b"a", b"b"])
    assert admin.describe_transactions([prepared.transactional_id])[prepared.transactional_id].state == "Ongoing"

    admin.end_transactions([prepared], committed=True).check()
    admin.end_transactions([prepared], committed=True).check()  # as after a lost answer

    assert read_values(broker.bootstrap, new_topic) == [b"a", b"b"]
    (other_way,) = admin.end_transactions([prepared], committed=False).errors.values()
    assert other_way.code is ErrorCode.INVALID_TXN_STATE


def test_offsets_are_part_of_what_is_prepared(admin: ottla.Admin, broker: BrokerProcess, new_topic: str) -> None:
    group = f"group-{new_topic}"
    aborted = prepare(broker.bootstrap, new_topic, [b"a"])
    admin.end_transactions([aborted], committed=False).check()
    assert admin.list_group_offsets([group], require_stable=True)[group] == {}
    kept = prepare(broker.bootstrap, new_topic, [b"b"])
    admin.end_transactions([kept], committed=True).check()
    # Asked for everything, Kafka leaves out what it has yet to mark as committed; asked by name, it says so.
    partition = ottla.TopicPartition(new_topic, 0)
    assert admin.list_group_offsets({group: [partition]}, require_stable=True)[group][partition].offset == 7
    assert read_values(broker.bootstrap, new_topic) == [b"b"]


def test_who_takes_over_the_id_aborts_what_was_prepared(
    admin: ottla.Admin, broker: BrokerProcess, new_topic: str
) -> None:
    first = prepare(broker.bootstrap, new_topic, [b"a"])
    second = prepare(broker.bootstrap, new_topic, [b"b"])
    assert second.producer_epoch > first.producer_epoch
    for committed in (True, False):
        (error,) = admin.end_transactions([first], committed=committed).errors.values()
        assert error.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    admin.end_transactions([second], committed=True).check()
    assert read_values(broker.bootstrap, new_topic) == [b"b"]


def test_a_producer_ends_its_own_prepared_transaction(
    admin: ottla.Admin, broker: BrokerProcess, new_topic: str
) -> None:
    with ottla.Producer(bootstrap_servers=broker.bootstrap, transactional_id=f"of-{new_topic}") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(new_topic, b"a")
        producer.prepare_transaction()
        with pytest.raises(ottla.errors.TransactionStateError, match="commit or abort the prepared transaction"):
            producer.send(new_topic, b"b")
        producer.commit_transaction()
    assert read_values(broker.bootstrap, new_topic) == [b"a"]


def test_what_could_not_be_stored_cannot_be_prepared(broker: BrokerProcess, admin: ottla.Admin, new_topic: str) -> None:
    change = {ottla.ConfigResource.topic(new_topic): [ottla.ConfigChange("max.message.bytes", "200")]}
    admin.incremental_alter_configs(change).check()
    with ottla.Producer(bootstrap_servers=broker.bootstrap, transactional_id=f"of-{new_topic}") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(new_topic, b"x" * 1000)
        with pytest.raises(ottla.errors.RecordTooLargeError):
            producer.prepare_transaction()
        producer.abort_transaction()
