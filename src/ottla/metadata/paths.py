"""Names and contents of the nodes: Kafka's paths and Kafka's JSON, so its people and tools recognise them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeGuard
from urllib.parse import quote

from ottla.base.errors import OttlaError
from ottla.base.types import NIL_UUID, Endpoint, TopicPartition, Uuid, uuid_from_text, uuid_to_text

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
REASSIGNMENTS = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
"""These two are there only while old tools want something."""
ISR_CHANGES = "/isr_change_notification"
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
    ISR_CHANGES,
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
    except RecursionError:
        raise MalformedNodeError("it holds no JSON: it is nested too deeply") from None
    if not isinstance(value, dict):
        raise MalformedNodeError("it holds no JSON object")
    return _Fields(value)


class _Fields(dict[str, Any]):
    """Those of a node's JSON, each of the kind it should be. Unknown ones are left alone."""

    def integer(self, name: str, *, bits: int = 32) -> int:
        value = self.get(name)
        # Some numbers are written as text.
        if isinstance(value, str) and _NUMBER.fullmatch(value):
            value = int(value)
        if not _is_integer(value, bits):
            raise MalformedNodeError(f"its {name} is no whole number of {bits} bits")
        return value

    def integers(self, name: str) -> list[int]:
        return _integers(self.get(name), name)

    def text(self, name: str) -> str:
        value = self.get(name)
        if not _is_text(value):
            raise MalformedNodeError(f"its {name} is no text")
        return value

    def texts(self, name: str) -> dict[str, str]:
        value = self.get(name)
        if not isinstance(value, dict) or not all(map(_is_text, (*value.keys(), *value.values()))):
            raise MalformedNodeError(f"its {name} is no object of texts")
        return value

    def text_list(self, name: str) -> list[str]:
        value = self.get(name)
        if not isinstance(value, list) or not all(map(_is_text, value)):
            raise MalformedNodeError(f"its {name} are no list of texts")
        return value

    def entries(self, name: str) -> list[_Fields]:
        value = self.get(name)
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise MalformedNodeError(f"its {name} is no list of objects")
        return [_Fields(each) for each in value]

    def replicas(self, name: str) -> dict[int, list[int]]:
        """Lists of brokers by partition; empty if it is missing, as it is in older versions."""
        value = self.get(name, {})
        if not isinstance(value, dict) or not all(map(_is_partition, value)):
            raise MalformedNodeError(f"its {name} are not lists by partition")
        return {int(partition): _integers(replicas, name) for partition, replicas in value.items()}


_NUMBER = re.compile(r"-?[0-9]{1,19}")


def _is_integer(value: object, bits: int) -> TypeGuard[int]:
    """Others can be stored, but no broker could be told of them."""
    return type(value) is int and -(1 << bits - 1) <= value < 1 << bits - 1


def _is_partition(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None and _is_integer(number := int(text), 32) and number >= 0


def _is_text(value: object) -> TypeGuard[str]:
    """JSON can hold halves of characters, which cannot be sent."""
    return isinstance(value, str) and not any("\ud800" <= each <= "\udfff" for each in value)


def _integers(value: object, name: str) -> list[int]:
    if not isinstance(value, list) or not all(_is_integer(each, 32) for each in value):
        raise MalformedNodeError(f"its {name} are not lists of numbers")
    return value


class BrokerNode(NamedTuple):
    """/brokers/ids/B: a live broker. Its epoch is the node's creation id."""

    endpoints: list[tuple[Endpoint, str]]
    """Each endpoint with the security protocol of its listener."""
    rack: str | None
    first_epoch: int | None = None
    """Of a process that has lost a session and registers again: the epoch of its first registration."""
    was_stopped_cleanly: bool = False
    """Before this process was started: it has all it had then. Kafka's brokers do not say."""

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
        if self.was_stopped_cleanly:
            value["clean_shutdown"] = True
        return _dump(value)

    @classmethod
    def decode(cls, data: bytes) -> BrokerNode:
        """Older versions name one address only, or no protocols."""
        value = _load(data)
        protocols = value.texts("listener_security_protocol_map") if "listener_security_protocol_map" in value else {}
        if "endpoints" not in value:
            return cls([(Endpoint("PLAINTEXT", value.text("host"), value.integer("port")), "PLAINTEXT")], None)
        endpoints = []
        for text in value.text_list("endpoints"):
            listener, _, address = text.partition("://")
            host, _, port = address.rpartition(":")
            if not re.fullmatch("[0-9]{1,5}", port):
                raise MalformedNodeError(f"its endpoint {text!r} is no address")
            endpoints.append((Endpoint(listener, host.strip("[]"), int(port)), protocols.get(listener, listener)))
        return cls(
            endpoints,
            None if value.get("rack") is None else value.text("rack"),
            None if value.get("first_epoch") is None else value.integer("first_epoch", bits=64),
            value.get("clean_shutdown") is True,
        )


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
        """Raises MalformedNodeError also for assignments that no topic can have."""
        value = _load(data)
        try:
            topic_id = uuid_from_text(value.text("topic_id")) if "topic_id" in value else NIL_UUID
        except ValueError:
            raise MalformedNodeError("its topic_id is none") from None
        if "partitions" not in value:
            raise MalformedNodeError("it has no partitions")
        partitions = value.replicas("partitions")
        for index, replicas in partitions.items():
            if not replicas:
                raise MalformedNodeError(f"its partition {index} has no replicas")
            if min(replicas) < 0 or len(set(replicas)) < len(replicas):
                raise MalformedNodeError(f"its partition {index} has the replicas {replicas}")
        return cls(
            topic_id,
            partitions,
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


def decode_controller_epoch(data: bytes) -> int:
    """A number and nothing else."""
    text = data.decode(errors="replace")
    if not _NUMBER.fullmatch(text) or not _is_integer(int(text), 32):
        raise MalformedNodeError(f"{text!r} is no whole number of 32 bits")
    return int(text)


def encode_log_dir_event(broker_id: int) -> bytes:
    return _dump({"version": 1, "broker": broker_id, "event": _LOG_DIR_FAILURE})


def decode_log_dir_event(data: bytes) -> int:
    """The broker that a directory has failed of."""
    return _load(data).integer("broker")


def encode_reassignments(moves: Mapping[TopicPartition, Iterable[int]]) -> bytes:
    listed = [{"topic": tp.topic, "partition": tp.partition, "replicas": list(moves[tp])} for tp in moves]
    return _dump({"version": 1, "partitions": listed})


def decode_reassignments(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    """Which replicas somebody wants partitions to have."""
    return {_partition(entry): tuple(entry.integers("replicas")) for entry in _load(data).entries("partitions")}


def decode_partitions(data: bytes) -> list[TopicPartition]:
    """Those that leaders are to be elected of, or whose in-sync sets have changed."""
    return [_partition(entry) for entry in _load(data).entries("partitions")]


def _partition(entry: _Fields) -> TopicPartition:
    return TopicPartition(entry.text("topic"), entry.integer("partition"))


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
    return value.integer("block_start", bits=64), value.integer("block_end", bits=64)
