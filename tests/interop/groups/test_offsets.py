"""Committed offsets through every client: as they were given, for each partition, and over restarts of the broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest

from tests.broker_process import BrokerProcess
from tests.interop.groups.conftest import QUICK_GROUPS
from tests.interop.groups.raw_member import RawMember
from tests.interop.groups.scene import committed_offsets, describe, wait_until, write_records
from tests.interop.peers import aiokafka_client, kafka_python
from tests.interop.peers.confluent import consumer, make_topic, poll_messages
from tests.interop.peers.peer import PATIENCE_S
from tests.raw_client import RawClient
from tests.waiting import run_async

pytestmark = pytest.mark.interop

AUTO_COMMIT: dict[str, Any] = {"enable_auto_commit": True, "auto_commit_interval_ms": 100}


@pytest.fixture
def topic(group_broker: BrokerProcess, new_topic: str) -> str:
    make_topic(group_broker.bootstrap, new_topic, 3)
    write_records(group_broker.bootstrap, new_topic, 3, 10)
    return new_topic


def test_confluent_kafka_commits_and_reads_back(group_broker: BrokerProcess, topic: str) -> None:
    reader = consumer(group_broker.bootstrap, group_id=topic)
    partitions = [confluent_kafka.TopicPartition(topic, index) for index in range(3)]
    reader.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(3)])
    try:
        nothing = reader.committed(partitions, timeout=PATIENCE_S)
        assert [found.offset for found in nothing] == [confluent_kafka.OFFSET_INVALID] * 3
        given = [
            confluent_kafka.TopicPartition(topic, 0, 4, metadata="here, ça va", leader_epoch=0),
            confluent_kafka.TopicPartition(topic, 2, 7),
        ]
        reader.commit(offsets=given, asynchronous=False)
        done: list[object] = []
        found = reader.committed(partitions, timeout=PATIENCE_S)
        assert [item.offset for item in found] == [4, confluent_kafka.OFFSET_INVALID, 7]
        assert (found[0].metadata, found[0].leader_epoch) == ("here, ça va", 0)
        assert (found[2].metadata or "", found[2].leader_epoch) == ("", None)
        reader.commit(offsets=[confluent_kafka.TopicPartition(topic, 1, 5)], asynchronous=True)

        def has_come() -> bool:
            done[:] = [item.offset for item in reader.committed(partitions, timeout=PATIENCE_S)]
            return done == [4, 5, 7]

        wait_until(has_come, lambda: str(done))
        with pytest.raises(confluent_kafka.KafkaException) as refused:
            reader.commit(offsets=[confluent_kafka.TopicPartition(topic, 3, 1)], asynchronous=False)
        assert refused.value.args[0].code() == confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART
    finally:
        reader.close()


def test_kafka_python_commits_and_reads_back(group_broker: BrokerProcess, topic: str) -> None:
    reader = kafka_python.consumer(group_broker.bootstrap, group_id=topic, enable_auto_commit=False)
    partitions = [kafka.TopicPartition(topic, index) for index in range(3)]
    reader.assign(partitions)
    try:
        assert reader.committed(partitions[0]) is None
        reader.commit(
            {
                partitions[0]: kafka.OffsetAndMetadata(4, "here, ça va", 0),
                partitions[2]: kafka.OffsetAndMetadata(7, "", -1),
            }
        )
        assert reader.committed(partitions[0], metadata=True) == kafka.OffsetAndMetadata(4, "here, ça va", 0)
        assert [reader.committed(partition) for partition in partitions] == [4, None, 7]
        reader.commit_async({partitions[1]: kafka.OffsetAndMetadata(5, "", -1)})
        wait_until(lambda: reader.committed(partitions[1]) == 5, lambda: "what was committed does not come back")
    finally:
        reader.close()


def test_aiokafka_commits_and_reads_back(group_broker: BrokerProcess, topic: str) -> None:
    async def scenario() -> None:
        partitions = [aiokafka.TopicPartition(topic, index) for index in range(3)]
        settings = {"group_id": topic, "enable_auto_commit": False}
        async with aiokafka_client.consumer(group_broker.bootstrap, **settings) as reader:
            reader.assign(partitions)
            assert await reader.committed(partitions[0]) is None
            await reader.commit({partitions[0]: (4, "here, ça va"), partitions[2]: 7})
            assert [await reader.committed(partition) for partition in partitions] == [4, None, 7]

    run_async(scenario())
    with RawClient(group_broker.port) as client:
        assert committed_offsets(client, topic) == {(topic, 0): 4, (topic, 2): 7}


def offsets_read_by_confluent(bootstrap: str, topic: str, count: int) -> list[int]:
    reader = consumer(bootstrap, auto_offset_reset="earliest", group_id=topic, **AUTO_COMMIT)
    reader.subscribe([topic])
    try:
        return [message.offset() or 0 for message in poll_messages(reader, count)]
    finally:
        reader.close()


def offsets_read_by_kafka_python(bootstrap: str, topic: str, count: int) -> list[int]:
    reader = kafka_python.consumer(bootstrap, auto_offset_reset="earliest", group_id=topic, **AUTO_COMMIT)
    reader.subscribe([topic])
    try:
        return [record.offset for record in kafka_python.poll_records(reader, count)]
    finally:
        reader.close()


def offsets_read_by_aiokafka(bootstrap: str, topic: str, count: int) -> list[int]:
    async def scenario() -> list[int]:
        settings = {"group_id": topic, "auto_offset_reset": "earliest", **AUTO_COMMIT}
        async with aiokafka_client.consumer(bootstrap, **settings) as reader:
            reader.subscribe([topic])
            return [record.offset for record in await aiokafka_client.poll_records(reader, count)]

    return run_async(scenario())


@pytest.mark.parametrize(
    "read_and_leave", [offsets_read_by_confluent, offsets_read_by_kafka_python, offsets_read_by_aiokafka]
)
def test_what_is_committed_by_itself_is_where_the_next_member_begins(
    group_broker: BrokerProcess, topic: str, read_and_leave: Callable[[str, str, int], list[int]]
) -> None:
    assert sorted(read_and_leave(group_broker.bootstrap, topic, 30)) == sorted(3 * list(range(10)))
    with RawClient(group_broker.port) as client:
        assert committed_offsets(client, topic) == {(topic, index): 10 for index in range(3)}
    write_records(group_broker.bootstrap, topic, 1, 5, first=10)
    assert read_and_leave(group_broker.bootstrap, topic, 5) == [10, 11, 12, 13, 14]


# Over the broker's own end


@pytest.fixture
def group_broker_of_ones_own(own_broker: BrokerProcess) -> Iterator[BrokerProcess]:
    own_broker.overrides |= QUICK_GROUPS | {"offsets.topic.num.partitions": "5"}
    own_broker.start()
    yield own_broker
    assert own_broker.stop() == 0
    assert own_broker.tracebacks() == []


@pytest.mark.crash
@pytest.mark.parametrize("end", [BrokerProcess.stop, BrokerProcess.kill])
def test_offsets_and_members_outlive_the_broker(
    group_broker_of_ones_own: BrokerProcess, end: Callable[[BrokerProcess], object]
) -> None:
    broker = group_broker_of_ones_own
    make_topic(broker.bootstrap, "t", 3)
    groups = [f"group-{number}" for number in range(10)]
    clients = {group: consumer(broker.bootstrap, group_id=group) for group in groups}
    for number, group in enumerate(groups):
        given = [confluent_kafka.TopicPartition("t", index, 100 * number + index, "note") for index in range(3)]
        clients[group].commit(offsets=given, asynchronous=False)
        for offset in (1000, 1001):
            last = confluent_kafka.TopicPartition("t", 0, offset)
            clients[group].commit(offsets=[last], asynchronous=False)
    for reader in clients.values():
        reader.close()
    with RawMember(broker.port, "live", protocols=("range", "other")) as member:
        member.join_alone()
        assert member.commit("t", 77) == 0
        member_id, generation = member.id, member.generation

    end(broker)
    broker.start()
    with RawClient(broker.port) as client:
        for group in (*groups, "live"):
            # Each may have a coordinator of its own, which has to load.
            wait_until(
                lambda group=group: bool(committed_offsets(client, group)), lambda: "a coordinator does not come back"
            )
        for number, group in enumerate(groups):
            assert committed_offsets(client, group) == {
                ("t", 0): 1001,
                ("t", 1): 100 * number + 1,
                ("t", 2): 100 * number + 2,
            }
        assert committed_offsets(client, "live") == {("t", 0): 77}
    # The member goes on as if nothing had happened: same id, same generation, same assignment.
    assert describe(broker, "live")[0] == "Stable"
    with RawMember(broker.port, "live") as member:
        member.id, member.generation = member_id, generation
        assert member.heartbeat() == 0
        assert member.sync().assignment == b"all"
        assert member.commit("t", 78) == 0
        assert committed_offsets(member.client, "live") == {("t", 0): 78}
