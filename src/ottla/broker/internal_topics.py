"""The topics coordinators keep their state in: created when somebody first asks for a coordinator."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.config.broker_config import BrokerConfig
from ottla.machines.cluster.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.machines.cluster.topics import NewTopic

if TYPE_CHECKING:
    from ottla.broker.node import Broker

log = logging.getLogger(__name__)


def internal_topic(name: str, config: BrokerConfig) -> NewTopic:
    if name == GROUP_METADATA_TOPIC:
        return NewTopic(
            name,
            config.integer("offsets.topic.num.partitions"),
            config.integer("offsets.topic.replication.factor"),
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.integer("offsets.topic.segment.bytes")),
            },
        )
    if name == TRANSACTION_STATE_TOPIC:
        return NewTopic(
            name,
            config.integer("transaction.state.log.num.partitions"),
            config.integer("transaction.state.log.replication.factor"),
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "unclean.leader.election.enable": "false",
                "min.insync.replicas": str(config.integer("transaction.state.log.min.isr")),
                "segment.bytes": str(config.integer("transaction.state.log.segment.bytes")),
            },
        )
    raise ValueError(f"{name} is not an internal topic")


async def ensure_internal_topic(broker: Broker, name: str) -> None:
    """Creates the topic unless it is there, with fewer replicas if fewer brokers are."""
    if name in broker.image.topics:
        return
    if broker.image.controller_id < 0:
        raise KafkaError(
            "this broker has not heard of the cluster's topics yet", code=ErrorCode.COORDINATOR_NOT_AVAILABLE
        )
    new = internal_topic(name, broker.config)
    live = len(broker.image.brokers)
    if live < new.replication_factor:
        log.warning(
            "topic %s gets %d replicas and not %d, as so many brokers are alive; reassign it when there are more",
            name,
            live,
            new.replication_factor,
        )
        new.replication_factor = live
        if "min.insync.replicas" in new.configs:
            new.configs["min.insync.replicas"] = str(min(int(new.configs["min.insync.replicas"]), live))
    try:
        await broker.topic_admin.create_here_or_there(new)
    except KafkaError as e:
        if e.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise KafkaError(
                f"the topic {name} cannot be created: {e.message}", code=ErrorCode.COORDINATOR_NOT_AVAILABLE
            ) from e
