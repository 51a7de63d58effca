"""Internal topics are made when they are asked for, with as many replicas as there are brokers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition, Uuid
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.internal_topics import ensure_internal_topic, internal_topic
from ottla.machines.cluster.image import BrokerImage, ClusterImage, PartitionImage
from tests.log_lines import messages_of

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
CONFIG = BrokerConfig({"ottla.cluster.dir": "c"})


class Asked:
    """A broker of a cluster, and whoever makes topics in it."""

    def __init__(self, live: int, error: ErrorCode = ErrorCode.NONE) -> None:
        self.image = ClusterImage("c")
        self.image.set_brokers(1, 1, [BrokerImage(broker_id, (), None) for broker_id in range(live)])
        self.config = CONFIG
        self.topic_admin = SimpleNamespace(create_here_or_there=self._create)
        self.made: list[Any] = []
        self._error = error

    async def _create(self, new: Any) -> None:
        self.made.append(new)
        if self._error:
            raise KafkaError("not now", code=self._error)


def ensure(broker: Asked, name: str) -> None:
    asyncio.run(ensure_internal_topic(broker, name))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "live", "replicas", "min_isr"),
    [
        (OFFSETS, 1, 1, None),
        (OFFSETS, 2, 2, None),
        (OFFSETS, 3, 3, None),
        (OFFSETS, 4, 3, None),
        (TRANSACTIONS, 1, 1, "1"),
        (TRANSACTIONS, 2, 2, "2"),
        (TRANSACTIONS, 3, 3, "2"),
    ],
)
def test_a_topic_gets_no_more_replicas_than_there_are_brokers(
    caplog: pytest.LogCaptureFixture, name: str, live: int, replicas: int, min_isr: str | None
) -> None:
    broker = Asked(live)
    ensure(broker, name)
    expected = internal_topic(name, CONFIG)
    assert (expected.partitions, expected.replication_factor) == (50, 3)
    expected.replication_factor = replicas
    if min_isr is not None:
        expected.configs["min.insync.replicas"] = min_isr
    assert broker.made == [expected]
    warning = f"topic {name} gets {live} replicas and not 3, as so many brokers are alive; reassign it when there are"
    assert messages_of(caplog, "ottla.broker.internal_topics") == [f"{warning} more"] * (live < 3)


def test_a_topic_that_is_there_is_not_made() -> None:
    broker = Asked(3)
    tp = TopicPartition(OFFSETS, 0)
    broker.image.set_partition(tp, Uuid(bytes(range(16))), PartitionImage(1, 0, 0, (1,), (1,), ()))
    ensure(broker, OFFSETS)
    assert broker.made == []
    ensure(broker, TRANSACTIONS)
    assert [new.name for new in broker.made] == [TRANSACTIONS]


@pytest.mark.parametrize(("controller_id", "is_known"), [(-1, False), (0, True), (1, True)])
def test_who_knows_nothing_of_the_cluster_makes_nothing(controller_id: int, is_known: bool) -> None:
    broker = Asked(3)
    broker.image.controller_id = controller_id
    if is_known:
        ensure(broker, OFFSETS)
    else:
        with pytest.raises(KafkaError, match="has not heard of the cluster's topics yet") as refused:
            ensure(broker, OFFSETS)
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert len(broker.made) == is_known


def test_another_broker_may_have_been_faster() -> None:
    broker = Asked(3, ErrorCode.TOPIC_ALREADY_EXISTS)
    ensure(broker, OFFSETS)
    assert len(broker.made) == 1
    with pytest.raises(KafkaError, match="the topic __consumer_offsets cannot be created: not now") as refused:
        ensure(Asked(3, ErrorCode.POLICY_VIOLATION), OFFSETS)
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_no_other_topic_is_internal() -> None:
    with pytest.raises(ValueError, match="t is not an internal topic"):
        internal_topic("t", CONFIG)
