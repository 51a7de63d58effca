"""What a broker asks of the controller that is another broker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.replication.controller_client import ControllerClient
from ottla.machines.cluster.controller import ShutdownAsked
from ottla.machines.cluster.image import ClusterImage
from ottla.machines.cluster.topics import NewTopic
from ottla.wire.apis.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from ottla.wire.apis.controlled_shutdown import ControlledShutdownResponse, RemainingPartition
from ottla.wire.apis.create_topics import CreatableTopicResult, CreateTopicsResponse

CONTROLLER = 3


class Elsewhere:
    """The controller of this broker, which is not the active one."""

    is_active = False


class Here:
    """The controller of this broker, which is the active one."""

    is_active = True

    def __init__(self) -> None:
        self.submitted: list[Any] = []

    async def submit(self, event: Any) -> Any:
        self.submitted.append(event)
        return (TopicPartition("t", 1),)


class Peers:
    """Connections to other brokers, all of which give one answer."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self.asked: list[Any] = []
        self.timeouts_ms: list[int] = []
        self.work: list[str] = []

    async def request(self, broker_id: int, request: Any, response_type: type, *, timeout_ms: int, work: str) -> Any:
        self.work.append(work)
        self.timeouts_ms.append(timeout_ms)
        assert broker_id == CONTROLLER and isinstance(self._answer, response_type)
        self.asked.append(request)
        return self._answer


def client(answer: Any) -> tuple[ControllerClient, Peers]:
    image, peers = ClusterImage("cluster"), Peers(answer)
    image.controller_id = CONTROLLER
    return ControllerClient(image, Elsewhere(), peers, timeout_ms=7, topic_timeout_ms=9), peers  # type: ignore[arg-type]


def test_a_topic_is_created_there_and_a_refusal_told() -> None:
    new = NewTopic("t", 2, 1, configs={"cleanup.policy": "compact"})
    asking, peers = client(CreateTopicsResponse(topics=[CreatableTopicResult(name="t")]))
    asyncio.run(asking.create_topic(new))
    assert peers.work == ["controller"]
    (topic,) = peers.asked[0].topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("t", 2, 1)
    assert (peers.timeouts_ms, peers.asked[0].timeout_ms) == ([7], 9)
    assert [(setting.name, setting.value) for setting in topic.configs] == [("cleanup.policy", "compact")]
    refused = CreatableTopicResult(name="t", error_code=ErrorCode.POLICY_VIOLATION, error_message="not this one")
    asking, _ = client(CreateTopicsResponse(topics=[refused]))
    with pytest.raises(KafkaError, match="not this one") as caught:
        asyncio.run(asking.create_topic(new))
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


def test_a_broker_that_leaves_is_told_what_nobody_takes_over() -> None:
    left = [RemainingPartition(topic_name="t", partition_index=index) for index in (1, 4)]
    asking, peers = client(ControlledShutdownResponse(remaining_partitions=left))
    assert asyncio.run(asking.relieve(7, 70)) == [TopicPartition("t", 1), TopicPartition("t", 4)]
    assert (peers.asked[0].broker_id, peers.asked[0].broker_epoch) == (7, 70)
    asking, _ = client(ControlledShutdownResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    with pytest.raises(KafkaError) as caught:
        asyncio.run(asking.relieve(7, 70))
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_sets_in_sync_are_changed_there() -> None:
    answer = AlterPartitionResponse()
    asking, peers = client(answer)
    request = AlterPartitionRequest(broker_id=7)
    assert asyncio.run(asking.alter_partition(request)) is answer
    assert peers.asked == [request]


def test_a_controller_of_its_own_is_asked_without_a_connection() -> None:
    here, peers = Here(), Peers(None)
    asking = ControllerClient(ClusterImage("cluster"), here, peers)  # type: ignore[arg-type]
    assert asyncio.run(asking.relieve(7, 70)) == (TopicPartition("t", 1),)
    assert (here.submitted, peers.asked) == ([ShutdownAsked(7, 70)], [])


def test_the_controller_has_half_a_minute() -> None:
    image, peers = ClusterImage("cluster"), Peers(CreateTopicsResponse(topics=[CreatableTopicResult(name="t")]))
    image.controller_id = CONTROLLER
    asking = ControllerClient(image, Elsewhere(), peers)  # type: ignore[arg-type]
    asyncio.run(asking.create_topic(NewTopic("t", 2, 1)))
    assert (peers.timeouts_ms, peers.asked[0].timeout_ms) == ([30_000], 30_000)
