"""Names and contents of the nodes: Kafka's paths and Kafka's JSON, so its people and tools recognise them."""

from __future__ import annotations

import json
from typing import Any, NamedTuple
from urllib.parse import quote

from ottla.base.errors import OttlaError
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

FEATURE = "/feature"

PERSISTENT_PATHS = (
    "/brokers",
    BROKER_IDS,
    TOPICS,
    BROKER_SEQUENCE,
    "/config",
    CONFIG_TOPICS,
    CONFIG_BROKERS,
    CONFIG_CHANGES,
    "/config/clients",
    "/config/users",
    "/config/ips",
    "/admin",
    DELETE_TOPICS,
    "/isr_change_notification",
    LOG_DIR_EVENTS,
    PRODUCER_ID_BLOCK,
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


class MalformedNodeError(OttlaError):
    """A node holds something else than it should. Somebody may have written it by hand."""


def _load(data: bytes) -> _Fields:
    try:
        value = json.loads(data)
    except ValueError as e:
        raise MalformedNodeError(f"it holds no JSON: {e}") from None
    if not isinstance(value, dict):
        raise MalformedNodeError("it holds no JSON object")
    return _Fields(value)


class _Fields(dict[str, Any]):
    """Those of a node's JSON, each of the kind it should be. Unknown ones are left alone."""

    def integer(self, name: str) -> int:
        value = self.get(name)
        # Some numbers are written as text.
        if isinstance(value, str) and value.lstrip("-").isdecimal():
            return int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise MalformedNodeError(f"its {name} is no whole number")
        return value

    def integers(self, name: str) -> list[int]:
        return _integers(self.get(name), name)

    def text(self, name: str) -> str:
        value = self.get(name)
        if not isinstance(value, str):
            raise MalformedNodeError(f"its {name} is no text")
        return value

    def texts(self, name: str) -> dict[str, str]:
        value = self.get(name)
        if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
            raise MalformedNodeError(f"its {name} is no object of texts")
        return value

    def replicas(self, name: str) -> dict[int, list[int]]:
        """Lists of brokers by partition; empty if it is missing, as it is in older versions."""
        value = self.get(name, {})
        if not isinstance(value, dict) or not all(key.isdecimal() for key in value):
            raise MalformedNodeError(f"its {name} are not lists by partition")
        return {int(partition): _integers(replicas, name) for partition, replicas in value.items()}


def _integers(value: object, name: str) -> list[int]:
    if not isinstance(value, list) or not all(type(each) is int for each in value):
        raise MalformedNodeError(f"its {name} are not lists of numbers")
    return value


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
        """Older versions name one address only, or no protocols."""
        value = _load(data)
        protocols = value.texts("listener_security_protocol_map") if "listener_security_protocol_map" in value else {}
        if "endpoints" not in value:
            return cls([(Endpoint("PLAINTEXT", value.text("host"), value.integer("port")), "PLAINTEXT")], None)
        endpoints = []
        for text in value["endpoints"]:
            listener, _, address = str(text).partition("://")
            host, _, port = address.rpartition(":")
            if not port.isdecimal():
                raise MalformedNodeError(f"its endpoint {text!r} is no address")
            endpoints.append((Endpoint(listener, host.strip("[]"), int(port)), protocols.get(listener, listener)))
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
        value = _load(data)
        try:
            topic_id = uuid_from_text(value.text("topic_id")) if "topic_id" in value else NIL_UUID
        except ValueError:
            raise MalformedNodeError("its topic_id is none") from None
        if "partitions" not in value:
            raise MalformedNodeError("it has no partitions")
        return cls(
            topic_id,
            value.replicas("partitions"),
            value.replicas("adding_replicas"),
            value.replicas("removing_replicas"),
        )


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
        value = _load(data)
        return cls(
            value.integer("leader"),
            value.integer("leader_epoch"),
            value.integers("isr"),
            value.integer("controller_epoch"),
        )


def encode_controller(broker_id: int, now_ms: int) -> bytes:
    return _dump({"version": 2, "brokerid": broker_id, "timestamp": str(now_ms), "kraftControllerEpoch": -1})


def decode_controller(data: bytes) -> int:
    return _load(data).integer("brokerid")


def encode_log_dir_event(broker_id: int) -> bytes:
    return _dump({"version": 1, "broker": broker_id, "event": _LOG_DIR_FAILURE})


def decode_log_dir_event(data: bytes) -> int:
    """The broker that a directory has failed of."""
    return _load(data).integer("broker")


def encode_config(config: dict[str, str]) -> bytes:
    return _dump({"version": 1, "config": dict(sorted(config.items()))})


def decode_config(data: bytes) -> dict[str, str]:
    # Kafka leaves nodes of entities without settings empty.
    return _load(data).texts("config") if data else {}


def encode_config_change(entity_path: str) -> bytes:
    return _dump({"version": 2, "entity_path": entity_path})


def decode_config_change(data: bytes) -> str:
    """The entity's path; the first version named its kind and its name."""
    value = _load(data)
    return (
        value.text("entity_path")
        if "entity_path" in value
        else "/".join((value.text("entity_type"), value.text("entity_name")))
    )


def encode_features() -> bytes:
    return _dump({"features": {}, "version": 2, "status": 1})


def encode_cluster_id(cluster_id: str) -> bytes:
    return _dump({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    return _load(data).text("id")


def encode_producer_id_block(broker_id: int, first: int, last: int) -> bytes:
    return _dump({"version": 1, "broker": broker_id, "block_start": str(first), "block_end": str(last)})


def decode_producer_id_block(data: bytes) -> tuple[int, int]:
    value = _load(data)
    return value.integer("block_start"), value.integer("block_end")
