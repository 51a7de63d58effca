"""What the admin client is asked for, and what it gives, against a broker in this process."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import ottla
from ottla import TopicPartition
from ottla.base.clock import ManualClock
from ottla.base.errors import ErrorCode
from ottla.client.aio.admin.transaction_calls import HANGING_AFTER_MS, TransactionCalls
from ottla.client.core.admin.outcomes import Outcomes
from ottla.client.core.admin.types import (
    ConfigChange,
    ConfigResource,
    HangingTransaction,
    NewPartitions,
    NewTopic,
    ProducerDescription,
    TopicPartitionReplica,
    TransactionDescription,
    TransactionListing,
)
from ottla.errors import ClientClosedError, ClientError
from ottla.testing import EmbeddedBroker
from ottla.wire.api_keys import ApiKey
from tests.waiting import PATIENCE_S, run_async


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture(scope="module")
def admin(broker: EmbeddedBroker) -> Iterator[ottla.Admin]:
    with ottla.Admin(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=5) as client:
        yield client


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    return broker.new_topic("admin", partitions=2)


def test_the_cluster_and_what_its_brokers_speak(broker: EmbeddedBroker, admin: ottla.Admin) -> None:
    cluster = admin.describe_cluster()
    ((node_id, address),) = cluster.brokers.items()
    assert cluster.controller_id == node_id == address.node_id and address.port == broker.port
    versions = admin.api_versions().check()
    assert list(versions) == [address] and 12 in versions[address][ApiKey.METADATA]


def test_topics_are_listed_made_larger_and_described(admin: ottla.Admin, topic: str) -> None:
    made = admin.create_topics([NewTopic(f"{topic}-b", 3, 1), f"{topic}-a"]).check()
    assert made[f"{topic}-b"].partitions == 3
    listed = admin.list_topics()
    assert list(listed) == sorted(listed) and {topic, f"{topic}-a", f"{topic}-b"} <= set(listed)
    admin.create_partitions({topic: 4, f"{topic}-b": NewPartitions(5)}).check()
    admin.create_partitions({topic: 9}, validate_only=True).check()
    described = admin.describe_topics([topic, listed[f"{topic}-b"].topic_id]).check()
    assert [len(found.partitions) for found in described.values()] == [4, 5]
    every = admin.describe_topics().check()
    assert list(every) == sorted(every) and every[topic] == described[topic]
    admin.delete_topics([f"{topic}-a", listed[f"{topic}-b"].topic_id]).check()
    assert topic in admin.list_topics() and f"{topic}-a" not in admin.list_topics()
    refused = admin.create_partitions({topic: 2})
    assert refused.errors[topic].code is ErrorCode.INVALID_PARTITIONS


def test_internal_topics_are_listed_if_they_are_asked_for(broker: EmbeddedBroker, admin: ottla.Admin) -> None:
    with ottla.Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="internal") as consumer:
        consumer.committed([TopicPartition(broker.new_topic(), 0)])
    assert "__consumer_offsets" not in admin.list_topics()
    assert admin.list_topics(include_internal=True)["__consumer_offsets"].is_internal


def test_settings_are_changed_one_by_one_or_all_at_once(admin: ottla.Admin, topic: str) -> None:
    resource = ConfigResource.topic(topic)

    def shown(*keys: str) -> list[str | None]:
        found = admin.describe_configs([resource], keys=keys).check()[resource]
        return [found[key].value for key in keys]

    admin.incremental_alter_configs({resource: [ConfigChange("retention.ms", "5000")]}, validate_only=True).check()
    assert shown("retention.ms") == ["604800000"]
    admin.incremental_alter_configs({resource: [ConfigChange("retention.ms", "5000")]}).check()
    assert shown("retention.ms", "segment.bytes") == ["5000", "1073741824"]
    admin.alter_configs({resource: {"segment.bytes": "2000000"}}, validate_only=True).check()
    assert shown("retention.ms", "segment.bytes") == ["5000", "1073741824"]
    admin.alter_configs({resource: {"segment.bytes": "2000000"}}).check()
    assert shown("retention.ms", "segment.bytes") == ["604800000", "2000000"]
    found = admin.describe_configs([resource], include_synonyms=True, include_documentation=True).check()[resource]
    assert len(found) > 10 and found["segment.bytes"].synonyms and found["segment.bytes"].documentation


def test_log_directories_and_where_replicas_are(broker: EmbeddedBroker, admin: ottla.Admin, topic: str) -> None:
    (node_id,) = admin.describe_cluster().brokers
    every = admin.describe_log_dirs().check()
    assert list(every) == [node_id]
    ((path, directory),) = every[node_id].items()
    assert {TopicPartition(topic, 0), TopicPartition(topic, 1)} <= set(directory.replicas)
    some = admin.describe_log_dirs([node_id], partitions=[TopicPartition(topic, 1)]).check()
    assert set(some[node_id][path].replicas) == {TopicPartition(topic, 1)}
    nobody = admin.describe_log_dirs([99])
    assert nobody.errors[99].code is ErrorCode.BROKER_ID_NOT_REGISTERED
    replica = TopicPartitionReplica(topic, 0, node_id)
    admin.alter_replica_log_dirs({replica: path}).check()
    nowhere = admin.alter_replica_log_dirs({replica: "/nowhere"})
    assert nowhere.errors[replica].code is ErrorCode.LOG_DIR_NOT_FOUND


def test_offsets_of_groups_are_set_listed_and_forgotten(admin: ottla.Admin, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    admin.alter_group_offsets(topic, {first: 3, second: 4}).check()

    def offsets(given: Any, **options: Any) -> dict[TopicPartition, int]:
        found = admin.list_group_offsets(given, **options).check()[topic]
        return {partition: at.offset for partition, at in found.items()}

    assert offsets([topic]) == {first: 3, second: 4}
    assert offsets({topic: [second]}) == {second: 4}
    assert offsets({topic: None}, require_stable=True) == {first: 3, second: 4}
    assert [group.group_id for group in admin.list_groups() if group.group_id == topic] == [topic]
    assert topic not in [group.group_id for group in admin.list_groups(states=["Stable"])]
    assert admin.describe_groups([topic])[topic].members == ()
    assert admin.find_group_coordinators([topic])[topic] == next(iter(admin.describe_cluster().brokers.values()))
    admin.delete_group_offsets(topic, [first]).check()
    assert offsets([topic]) == {second: 4}
    admin.delete_groups([topic]).check()
    assert admin.describe_groups([topic]).errors[topic].code is ErrorCode.GROUP_ID_NOT_FOUND


def test_transactions_are_listed_described_and_fenced(broker: EmbeddedBroker, admin: ottla.Admin, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    settings: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers, "transactional_id": topic}
    with ottla.Producer(**settings) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"v", partition=0).result(PATIENCE_S)
        (listed,) = [entry for entry in admin.list_transactions() if entry.transactional_id == topic]
        assert admin.list_transactions(producer_ids=[listed.producer_id]) == [listed]
        assert listed in admin.list_transactions(states=["Ongoing"])
        assert listed not in admin.list_transactions(states=["Empty"])
        assert listed not in admin.list_transactions(min_duration_ms=60_000)
        described = admin.describe_transactions([topic])[topic]
        assert described.partitions == {partition} and described.producer_id == listed.producer_id
        (found,) = admin.describe_producers([partition])[partition]
        assert (found.producer_id, found.txn_start_offset) == (listed.producer_id, 0)
        assert admin.find_hanging_transactions([partition], min_age_ms=0) == [], "its coordinator will end it"
        fenced = admin.fence_producers([topic])[topic]
        assert fenced.producer_id == listed.producer_id and fenced.producer_epoch > found.producer_epoch
        with pytest.raises(ClientError):
            producer.commit_transaction()
    (found,) = admin.describe_producers([partition])[partition]
    assert found.txn_start_offset is None
    assert admin.find_hanging_transactions([partition], min_age_ms=0) == []


def test_a_transaction_is_ended_in_one_partition(broker: EmbeddedBroker, admin: ottla.Admin, topic: str) -> None:
    settings: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers, "transactional_id": topic}
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with ottla.Producer(**settings) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for partition in (0, 1):
            producer.send(topic, b"v", partition=partition).result(PATIENCE_S)
        (found,) = admin.describe_producers([first])[first]
        admin.abort_transaction(HangingTransaction(first, found))
        starts = {
            partition: [each.txn_start_offset for each in producers]
            for partition, producers in admin.describe_producers([first, second]).check().items()
        }
        assert starts == {first: [None], second: [0]}


class Told(TransactionCalls):
    """An admin client whose brokers say what a test has given it."""

    def __init__(
        self,
        producers: dict[TopicPartition, list[ProducerDescription]],
        transactions: dict[str, TransactionDescription | ClientError],
    ) -> None:
        clock = ManualClock(NOW_MS)
        self._caller = SimpleNamespace(clock=clock)  # type: ignore[assignment]
        self.producers = producers
        self.transactions = transactions
        self.asked: list[Any] = []

    async def describe_producers(self, partitions: Any, *, timeout_ms: int | None = None) -> Any:
        self.asked.append(("producers", list(partitions), timeout_ms))
        return Outcomes(self.producers)

    async def list_transactions(self, **options: Any) -> Any:
        self.asked.append(("transactions", set(options["producer_ids"]), options["timeout_ms"]))
        return [TransactionListing(name, 7, "Ongoing") for name in self.transactions]

    async def describe_transactions(self, transactional_ids: Any, *, timeout_ms: int | None = None) -> Any:
        self.asked.append(("described", list(transactional_ids), timeout_ms))
        return Outcomes(self.transactions)


NOW_MS = 1_700_000_000_000
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def opened(producer_id: int, *, age_ms: int = HANGING_AFTER_MS, start_offset: int | None = 0) -> ProducerDescription:
    return ProducerDescription(producer_id, 0, 0, NOW_MS - age_ms, None, start_offset)


def known(name: str, producer_id: int, *partitions: TopicPartition) -> TransactionDescription:
    return TransactionDescription(name, "Ongoing", producer_id, 0, 60_000, NOW_MS, frozenset(partitions))


def test_a_transaction_that_no_coordinator_will_end_hangs() -> None:
    producers = {
        FIRST: [opened(1), opened(2), opened(3, age_ms=HANGING_AFTER_MS - 1), opened(4, start_offset=None)],
        SECOND: [opened(2)],
    }
    gone = ClientError("expired", code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    admin = Told(producers, {"two": known("two", 2, FIRST), "gone": gone})
    found = run_async(admin.find_hanging_transactions([FIRST, SECOND], timeout_ms=9))
    assert [(each.partition, each.producer.producer_id) for each in found] == [(FIRST, 1), (SECOND, 2)]
    assert admin.asked == [
        ("producers", [FIRST, SECOND], 9),
        ("transactions", {1, 2, 3}, 9),
        ("described", ["two", "gone"], 9),
    ]
    found = run_async(admin.find_hanging_transactions([FIRST], min_age_ms=HANGING_AFTER_MS - 1))
    assert [each.producer.producer_id for each in found] == [1, 3, 2]
    admin.transactions = {"two": ClientError("no", code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)}
    with pytest.raises(ClientError, match="no"):
        run_async(admin.find_hanging_transactions([FIRST]))


def test_where_nothing_is_open_no_coordinator_is_asked() -> None:
    admin = Told({FIRST: [opened(1, start_offset=None)], SECOND: []}, {})
    assert run_async(admin.find_hanging_transactions([FIRST, SECOND])) == []
    assert [name for name, *_ in admin.asked] == ["producers"]
    assert HANGING_AFTER_MS == 900_000, "longer than any transaction may take"


def test_what_cannot_be_ended_is_an_error(admin: ottla.Admin) -> None:
    nowhere = TopicPartition("nowhere", 0)
    producer = ProducerDescription(7, 0, 0, 0, None, 0)
    with pytest.raises(ClientError) as refused:
        admin.abort_transaction(HangingTransaction(nowhere, producer), timeout_ms=2000)
    assert refused.value.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REQUEST_TIMED_OUT)


def test_who_is_closed_answers_nothing(broker: EmbeddedBroker) -> None:
    admin = ottla.Admin(bootstrap_servers=broker.bootstrap_servers)
    admin.close()
    admin.close()
    with pytest.raises(ClientClosedError, match="make another one"):
        admin.describe_cluster()
