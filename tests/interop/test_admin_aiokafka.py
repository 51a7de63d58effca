"""Administration through aiokafka, which speaks older versions of these APIs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import InvalidPartitionsError, OffsetOutOfRangeError

from ottla.base.errors import ErrorCode
from tests.broker_process import BrokerProcess
from tests.interop.dataset import SAMPLES
from tests.interop.peers.confluent import ConfluentKafka
from tests.waiting import run_async

pytestmark = pytest.mark.interop

Scenario: TypeAlias = Callable[[AIOKafkaAdminClient], Awaitable[None]]


@pytest.fixture
def play(broker: BrokerProcess) -> Callable[[Scenario], None]:
    async def run(scenario: Scenario) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            await scenario(admin)
        finally:
            await admin.close()

    return lambda scenario: run_async(run(scenario))


async def create(admin: AIOKafkaAdminClient, *topics: NewTopic) -> list[int]:
    response = await admin.create_topics(list(topics))
    return [code for _, code, *_ in response.topic_errors]


async def values(admin: AIOKafkaAdminClient, topic: str, *names: str) -> dict[str, str]:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict.fromkeys(names))
    (response,) = await admin.describe_configs([resource])
    ((code, _, _, _, entries),) = response.resources
    assert code == 0
    return {name: value for name, value, *_ in entries}


def test_topics_are_created_listed_described_and_deleted(play: Callable[[Scenario], None], new_topic: str) -> None:
    async def scenario(admin: AIOKafkaAdminClient) -> None:
        me = (await admin.describe_cluster())["controller_id"]
        placed = NewTopic(f"{new_topic}-placed", -1, -1, {0: [me], 1: [me]}, {"retention.ms": "1000000"})
        assert await create(admin, NewTopic(new_topic, 3, 1), placed) == [0, 0]
        assert await create(admin, NewTopic(new_topic, 3, 1)) == [ErrorCode.TOPIC_ALREADY_EXISTS]
        assert {new_topic, placed.name} <= set(await admin.list_topics())
        described = await admin.describe_topics([new_topic, placed.name])
        assert [len(topic["partitions"]) for topic in described] == [3, 2]
        assert {p["leader"] for topic in described for p in topic["partitions"]} == {me}
        assert await values(admin, placed.name, "retention.ms") == {"retention.ms": "1000000"}
        deleted = await admin.delete_topics([new_topic, placed.name, f"{new_topic}-never"])
        assert [code for _, code in deleted.topic_error_codes] == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert not {new_topic, placed.name} & set(await admin.list_topics())

    play(scenario)


def test_topics_grow_and_do_not_shrink(play: Callable[[Scenario], None], new_topic: str) -> None:
    async def scenario(admin: AIOKafkaAdminClient) -> None:
        await create(admin, NewTopic(new_topic, 1, 1))
        await admin.create_partitions({new_topic: NewPartitions(4)})
        assert len((await admin.describe_topics([new_topic]))[0]["partitions"]) == 4
        with pytest.raises(InvalidPartitionsError):
            await admin.create_partitions({new_topic: NewPartitions(2)})

    play(scenario)


def test_settings_are_replaced_as_a_whole(play: Callable[[Scenario], None], new_topic: str) -> None:
    async def scenario(admin: AIOKafkaAdminClient) -> None:
        await create(admin, NewTopic(new_topic, 1, 1, topic_configs={"retention.ms": "1000000"}))
        resource = ConfigResource(ConfigResourceType.TOPIC, new_topic, {"segment.bytes": "2000000"})
        (response,) = await admin.alter_configs([resource])
        assert [code for code, *_ in response.resources] == [0]
        found = await values(admin, new_topic, "retention.ms", "segment.bytes")
        assert found == {"retention.ms": "604800000", "segment.bytes": "2000000"}

    play(scenario)


def test_a_brokers_settings_are_described(play: Callable[[Scenario], None], broker: BrokerProcess) -> None:
    async def scenario(admin: AIOKafkaAdminClient) -> None:
        me = (await admin.describe_cluster())["controller_id"]
        (response,) = await admin.describe_configs([ConfigResource(ConfigResourceType.BROKER, str(me))])
        ((code, _, _, _, entries),) = response.resources
        assert code == 0
        found: dict[str, Any] = {name: value for name, value, *_ in entries}
        assert found["log.dirs"] == str(broker.data_dir)

    play(scenario)


def test_records_are_deleted_up_to_an_offset(
    play: Callable[[Scenario], None], broker: BrokerProcess, new_topic: str
) -> None:
    ConfluentKafka().write(broker.bootstrap, new_topic, SAMPLES)

    async def scenario(admin: AIOKafkaAdminClient) -> None:
        partition = TopicPartition(new_topic, 0)
        assert await admin.delete_records({partition: RecordsToDelete(3)}) == {partition: 3}
        with pytest.raises(OffsetOutOfRangeError):
            await admin.delete_records({partition: RecordsToDelete(len(SAMPLES) + 1)})

    play(scenario)


def test_the_cluster_is_described(play: Callable[[Scenario], None], broker: BrokerProcess) -> None:
    async def scenario(admin: AIOKafkaAdminClient) -> None:
        cluster = await admin.describe_cluster()
        assert [(node["host"], node["port"]) for node in cluster["brokers"]] == [("127.0.0.1", broker.port)]
        assert cluster["cluster_id"]

    play(scenario)
