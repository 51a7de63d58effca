"""Names and contents of the nodes: Kafka's paths and Kafka's JSON, so its people and tools recognise them."""

from __future__ import annotations

import json
from typing import Any, NamedTuple
from urllib.parse import quote

from ottla.base.types import NIL_UUID, Endpoint, Uuid, uuid_from_text, uuid_to_text

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
CONFIG_TOPICS = "/config/topics"
CONFIG_BROKERS = "/config/brokers"
CONFIG_GROUPS = "/config/groups"
"""Kafka on ZooKeeper has no settings of groups, so this path is ours; it is like those of topics."""
CONFIG_CHANGES = "/config/changes"
DELETE_TOPICS = "/admin/delete_topics"
LOG_DIR_EVENTS = "/log_dir_event_notification"
CLUSTER_ID = "/cluster/id"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"

PERSISTENT_PATHS = (
    "/brokers",
    BROKER_IDS,
    TOPICS,
    BROKER_SEQUENCE,
    "/config",
    CONFIG_TOPICS,
    CONFIG_BROKERS,
    CONFIG_GROUPS,
    CONFIG_CHANGES,
    "/config/clients",
    "/config/users",
    "/config/ips",
    "/admin",
    DELETE_TOPICS,
    "/isr_change_notification",
    LOG_DIR_EVENTS,
    "/cluster",
    "/consumers",
)
"""What every cluster has from its first start on, parents before children."""

DEFAULT_ENTITY = "<default>"
_LOG_DIR_FAILURE = 1


def topic(name: str) -> str:
    return f"{TOPICS}/{name}"


def partition_state(name: str, partition: int) -> str:
    return f"{TOPICS}/{name}/partitions/{partition}/state"


def topic_config(name: str) -> str:
    return f"{CONFIG_TOPICS}/{quote(name, safe='')}"


def group_config(name: str) -> str:
    return f"{CONFIG_GROUPS}/{quote(name, safe='')}"


def broker_config(broker_id: int | None) -> str:
    """The node of one broker's dynamic settings; None stands for the defaults of all brokers."""
    return f"{CONFIG_BROKERS}/{DEFAULT_ENTITY if broker_id is None else broker_id}"


def _dump(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


class BrokerNode(NamedTuple):
    """/brokers/ids/B: a live broker. Its epoch is the node's creation id."""

    endpoints: list[tuple[Endpoint, str]]
    """Each endpoint with the security protocol of its listener."""
    rack: str | None
    first_epoch: int | None = None
    """Of a process that has lost a session and registers again: the epoch of its first registration."""

    def encode(self, now_ms: int) -> bytes:
        plain = next((e for e, protocol in self.endpoints if protocol == "PLAINTEXT"), None)
        value: dict[str, Any] = {
            "version": 5,
            "host": plain.host if plain else None,
            "port": plain.port if plain else -1,
            "jmx_port": -1,
            "timestamp": str(now_ms),
            "endpoints": [f"{e.listener}://{_bracketed(e.host)}:{e.port}" for e, _ in self.endpoints],
            "listener_security_protocol_map": {e.listener: protocol for e, protocol in self.endpoints},
            "features": {},
        }
        if self.rack is not None:
            value["rack"] = self.rack
        if self.first_epoch is not None:
            value["first_epoch"] = self.first_epoch
        return _dump(value)

    @classmethod
    def decode(cls, data: bytes) -> BrokerNode:
        value = json.loads(data)
        protocols = value["listener_security_protocol_map"]
        endpoints = []
        for text in value["endpoints"]:
            listener, _, address = text.partition("://")
            host, _, port = address.rpartition(":")
            endpoints.append((Endpoint(listener, host.strip("[]"), int(port)), protocols[listener]))
        return cls(endpoints, value.get("rack"), value.get("first_epoch"))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class TopicNode(NamedTuple):
    """/brokers/topics/T: which replicas each partition has."""

    topic_id: Uuid
    partitions: dict[int, list[int]]
    adding: dict[int, list[int]]
    removing: dict[int, list[int]]

    def encode(self) -> bytes:
        def keyed(assignment: dict[int, list[int]]) -> dict[str, list[int]]:
            return {str(partition): replicas for partition, replicas in sorted(assignment.items())}

        return _dump(
            {
                "version": 3,
                "topic_id": uuid_to_text(self.topic_id),
                "partitions": keyed(self.partitions),
                "adding_replicas": keyed(self.adding),
                "removing_replicas": keyed(self.removing),
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> TopicNode:
        value = json.loads(data)

        def keyed(name: str) -> dict[int, list[int]]:
            return {int(partition): replicas for partition, replicas in value.get(name, {}).items()}

        topic_id = uuid_from_text(value["topic_id"]) if "topic_id" in value else NIL_UUID
        return cls(topic_id, keyed("partitions"), keyed("adding_replicas"), keyed("removing_replicas"))


class PartitionStateNode(NamedTuple):
    """/brokers/topics/T/partitions/P/state. The node's version is the partition epoch."""

    leader: int
    leader_epoch: int
    isr: list[int]
    controller_epoch: int

    def encode(self) -> bytes:
        return _dump(
            {
                "controller_epoch": self.controller_epoch,
                "leader": self.leader,
                "version": 1,
                "leader_epoch": self.leader_epoch,
                "isr": self.isr,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> PartitionStateNode:
        value = json.loads(data)
        return cls(value["leader"], value["leader_epoch"], value["isr"], value["controller_epoch"])


def encode_controller(broker_id: int, now_ms: int) -> bytes:
    return _dump({"version": 2, "brokerid": broker_id, "timestamp": str(now_ms), "kraftControllerEpoch": -1})


def decode_controller(data: bytes) -> int:
    return int(json.loads(data)["brokerid"])


def encode_log_dir_event(broker_id: int) -> bytes:
    return _dump({"version": 1, "broker": broker_id, "event": _LOG_DIR_FAILURE})


def decode_log_dir_event(data: bytes) -> int:
    """The broker that a directory has failed of."""
    return int(json.loads(data)["broker"])


def encode_config(config: dict[str, str]) -> bytes:
    return _dump({"version": 1, "config": dict(sorted(config.items()))})


def decode_config(data: bytes) -> dict[str, str]:
    config: dict[str, str] = json.loads(data)["config"]
    return config


def encode_config_change(entity_path: str) -> bytes:
    return _dump({"version": 2, "entity_path": entity_path})


def encode_cluster_id(cluster_id: str) -> bytes:
    return _dump({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    return str(json.loads(data)["id"])


def encode_producer_id_block(broker_id: int, first: int, last: int) -> bytes:
    return _dump({"version": 1, "broker": broker_id, "block_start": str(first), "block_end": str(last)})


def decode_producer_id_block(data: bytes) -> tuple[int, int]:
    value = json.loads(data)
    return int(value["block_start"]), int(value["block_end"])
