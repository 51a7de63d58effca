"""Every API, every resource it names, refused: what the reply says, and where.

One table for our broker and for Apache Kafka, which is asked the same in the tests against it. Everything is refused to
clients from one address only, so that those from another can prepare the ground.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.base.types import Uuid
from ottla.broker.authorizer import CLUSTER_NAME, Operation, ResourceType
from ottla.records.builder import NewRecord, build_batch
from ottla.wire.api_keys import ApiKey
from ottla.wire.message import Request
from tests.access.messages import request_of

REFUSED_HOST = "127.0.0.2"

OPEN, SHUT = "open", "shut"
"""Topics that are there; rules are about the second."""
OPEN_GROUP, SHUT_GROUP, DELETED_FROM_GROUP = "open-group", "shut-group", "deleted-from"
OPEN_ID, SHUT_ID = "open-id", "shut-id"
MADE = "made"
"""A topic that is not there."""

TOPIC_REFUSED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
GROUP_REFUSED = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
CLUSTER_REFUSED = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
ID_REFUSED = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

_TOPIC_CONFIGS, _BROKER_CONFIGS, _GROUP_CONFIGS = 2, 4, 32
_A_SETTING_OF = {
    _TOPIC_CONFIGS: {"name": "retention.ms", "value": "1000000"},
    _BROKER_CONFIGS: {"name": "log.retention.ms", "value": "1000000"},
    _GROUP_CONFIGS: {"name": "consumer.session.timeout.ms", "value": "45000"},
}


@dataclass
class World:
    """What the requests need to know of the broker."""

    port: int
    broker_id: int
    topic_ids: dict[str, Uuid]
    producer: tuple[int, int]
    """Id and epoch of the producer of OPEN_ID, whose transaction has a partition of both topics."""

    @property
    def names_of_ids(self) -> Mapping[bytes, str]:
        return {topic_id: name for name, topic_id in self.topic_ids.items()}


Denied = tuple[Operation, ResourceType, str]
Fields = Callable[[World, int], Mapping[str, Any]]
Errors = Mapping[str, int] | Callable[[int], Mapping[str, int]]


@dataclass(frozen=True)
class Case:
    api: ApiKey
    denied: Sequence[Denied]
    versions: Sequence[int]
    fields: Fields
    errors: Errors = field(default_factory=dict)
    """Where the reply has which error, by the version where that differs."""
    hides: str = ""
    """A resource that the reply must not mention, though it is there."""
    shows: str = ""
    """One that it has to mention: a reply that is empty hides everything."""
    has: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the reply itself."""
    is_newer_than_kafka_3_9: bool = False
    each_is_enough: bool = False
    """Whether one of the operations that are denied would be enough; asked one by one, nothing is refused then."""

    @property
    def title(self) -> str:
        what = "+".join(f"{operation.name}-{kind.name}" for operation, kind, _ in self.denied)
        return f"{self.api.name}-{what}{'-hidden' if self.hides else ''}"

    def request(self, world: World, version: int) -> Request:
        return request_of(self.api, **self.fields(world, version))

    def expected_errors(self, version: int) -> Mapping[str, int]:
        return self.errors(version) if callable(self.errors) else self.errors


def topic(operation: Operation, name: str = SHUT) -> Denied:
    return operation, ResourceType.TOPIC, name


def group(operation: Operation) -> Denied:
    return operation, ResourceType.GROUP, SHUT_GROUP


def cluster(operation: Operation) -> Denied:
    return operation, ResourceType.CLUSTER, CLUSTER_NAME


def transactional_id(operation: Operation) -> Denied:
    return operation, ResourceType.TRANSACTIONAL_ID, SHUT_ID


def _records(**fields: Any) -> bytes:
    return build_batch([NewRecord(None, b"v", (), 1_700_000_000_000)], **fields)


def _produced(*names: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"name": name, "partition_data": [{"index": 0, "records": _records(**fields)}]} for name in names]


def _partitions(*names: str, called: str = "name", listed: str = "partitions", **fields: Any) -> list[dict[str, Any]]:
    return [{called: name, listed: [dict(fields)]} for name in names]


def _fetched(world: World) -> list[dict[str, Any]]:
    return [
        {"topic": name, "topic_id": world.topic_ids[name], "partitions": [{"partition": 0, "partition_max_bytes": 100}]}
        for name in (OPEN, SHUT)
    ]


def _offsets(*names: str) -> list[dict[str, Any]]:
    return _partitions(*names, partition_index=0, committed_offset=0)


def _stored(version: int, group_id: str, names: Sequence[str] | None) -> Mapping[str, Any]:
    topics = None if names is None else [{"name": name, "partition_indexes": [0]} for name in names]
    if version >= 8:
        return {"groups": [{"group_id": group_id, "topics": topics}]}
    return {"group_id": group_id, "topics": topics}


def _coordinator(version: int, kind: int, key: str) -> Mapping[str, Any]:
    return ({"coordinator_keys": [key]} if version >= 4 else {"key": key}) | ({"key_type": kind} if version else {})


def _left(version: int) -> Mapping[str, Any]:
    members = {"members": [{"member_id": "m"}]} if version >= 3 else {"member_id": "m"}
    return {"group_id": SHUT_GROUP, **members}


def _deleted(world: World, version: int, *, by_id: bool = False) -> Mapping[str, Any]:
    if by_id:
        return {"topics": [{"name": None, "topic_id": world.topic_ids[SHUT]}], "timeout_ms": 5000}
    named = {"topics": [{"name": SHUT}]} if version >= 6 else {"topic_names": [SHUT]}
    return {**named, "timeout_ms": 5000}


def _committed_in_transaction(world: World, transactional: str, group_id: str, *names: str) -> Mapping[str, Any]:
    producer_id, epoch = world.producer
    return {
        "transactional_id": transactional,
        "group_id": group_id,
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "topics": _offsets(*names),
    }


def _added(world: World, version: int, transactional: str, *names: str) -> Mapping[str, Any]:
    producer_id, epoch = world.producer
    topics = [{"name": name, "partitions": [0]} for name in names]
    if version >= 4:
        transaction = {
            "transactional_id": transactional,
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "topics": topics,
        }
        return {"transactions": [transaction]}
    return {
        "v3_and_below_transactional_id": transactional,
        "v3_and_below_producer_id": producer_id,
        "v3_and_below_producer_epoch": epoch,
        "v3_and_below_topics": topics,
    }


def _configured(kind: int, name: str, **configs: Any) -> list[dict[str, Any]]:
    return [{"resource_type": kind, "resource_name": name, **configs}]


def _altered(kind: int, name: str, *, incremental: bool) -> Mapping[str, Any]:
    config = _A_SETTING_OF[kind] | ({"config_operation": 0} if incremental else {})
    return {"resources": _configured(kind, name, configs=[config]), "validate_only": True}


def _made(world: World, version: int) -> Mapping[str, Any]:
    return {
        "topics": [{"name": MADE, "num_partitions": 1, "replication_factor": 1}],
        "timeout_ms": 5000,
        "validate_only": True,
    }


def _markers(world: World, version: int) -> Mapping[str, Any]:
    named = [{"name": OPEN, "partition_indexes": [0]}]
    return {
        "markers": [{"producer_id": 4711, "producer_epoch": 0, "transaction_result": False, "topics": named}],
    }


_ALTER_BOTH = (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
_MEMBER_FIELDS = {"group_id": SHUT_GROUP, "generation_id": 1, "member_id": "m"}

CASES: tuple[Case, ...] = (
    Case(
        ApiKey.PRODUCE,
        [topic(Operation.WRITE)],
        range(3, 12),
        lambda world, version: {"acks": -1, "timeout_ms": 5000, "topic_data": _produced(OPEN, SHUT)},
        {f"responses[{SHUT}].partition_responses[0].error_code": TOPIC_REFUSED},
    ),
    Case(
        ApiKey.PRODUCE,
        [transactional_id(Operation.WRITE)],
        range(3, 12),
        lambda world, version: {
            "acks": -1,
            "timeout_ms": 5000,
            "transactional_id": SHUT_ID,
            "topic_data": _produced(OPEN, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True),
        },
        {f"responses[{OPEN}].partition_responses[0].error_code": ID_REFUSED},
    ),
    Case(
        ApiKey.FETCH,
        [topic(Operation.READ)],
        range(4, 18),
        lambda world, version: {"max_wait_ms": 0, "topics": _fetched(world)},
        {f"responses[{SHUT}].partitions[0].error_code": TOPIC_REFUSED},
    ),
    Case(
        ApiKey.FETCH,
        [topic(Operation.READ)],
        range(7, 18),
        lambda world, version: {"max_wait_ms": 0, "session_epoch": 0, "topics": _fetched(world)},
        {f"responses[{SHUT}].partitions[0].error_code": TOPIC_REFUSED},
    ),
    Case(
        ApiKey.FETCH,
        [cluster(Operation.CLUSTER_ACTION)],
        range(4, 18),
        lambda world, version: {
            "max_wait_ms": 0,
            "topics": _fetched(world),
            **({"replica_state": {"replica_id": 77}} if version >= 15 else {"replica_id": 77}),
        },
        {f"responses[{name}].partitions[0].error_code": TOPIC_REFUSED for name in (OPEN, SHUT)},
    ),
    Case(
        ApiKey.LIST_OFFSETS,
        [topic(Operation.DESCRIBE)],
        range(1, 10),
        lambda world, version: {
            "replica_id": -1,
            "topics": _partitions(OPEN, SHUT, partition_index=0, timestamp=-1),
        },
        {f"topics[{SHUT}].partitions[0].error_code": TOPIC_REFUSED},
    ),
    Case(
        ApiKey.METADATA,
        [topic(Operation.DESCRIBE)],
        range(13),
        lambda world, version: {"topics": [{"name": OPEN}, {"name": SHUT}]},
        {f"topics[{SHUT}].error_code": TOPIC_REFUSED},
    ),
    Case(
        ApiKey.METADATA,
        [topic(Operation.DESCRIBE)],
        (12,),
        lambda world, version: {"topics": [{"name": None, "topic_id": world.topic_ids[SHUT]}]},
        {f"topics[{SHUT}].error_code": TOPIC_REFUSED},
    ),
    Case(
        ApiKey.METADATA,
        [topic(Operation.DESCRIBE)],
        range(13),
        lambda world, version: {"topics": None if version else []},
        hides=SHUT,
        shows=OPEN,
    ),
    Case(
        ApiKey.METADATA,
        [topic(Operation.CREATE, MADE), cluster(Operation.CREATE)],
        range(4, 13),
        lambda world, version: {"topics": [{"name": MADE}], "allow_auto_topic_creation": True},
        {f"topics[{MADE}].error_code": TOPIC_REFUSED},
    ),
    Case(
        ApiKey.METADATA,
        [cluster(Operation.DESCRIBE)],
        range(8, 11),
        lambda world, version: {"topics": [], "include_cluster_authorized_operations": True},
        has={"cluster_authorized_operations": 0},
    ),
    Case(
        ApiKey.OFFSET_COMMIT,
        [group(Operation.READ)],
        range(2, 10),
        lambda world, version: {"group_id": SHUT_GROUP, "topics": _offsets(OPEN, SHUT)},
        {f"topics[{name}].partitions[0].error_code": GROUP_REFUSED for name in (OPEN, SHUT)},
    ),
    Case(
        ApiKey.OFFSET_COMMIT,
        [topic(Operation.READ)],
        range(2, 10),
        lambda world, version: {"group_id": OPEN_GROUP, "topics": _offsets(OPEN, SHUT)},
        {f"topics[{SHUT}].partitions[0].error_code": TOPIC_REFUSED},
    ),
    Case(
        ApiKey.OFFSET_COMMIT,
        [topic(Operation.READ)],
        range(2, 10),
        lambda world, version: {"group_id": OPEN_GROUP, "topics": _offsets(SHUT)},
        {f"topics[{SHUT}].partitions[0].error_code": TOPIC_REFUSED},
    ),
    Case(
        ApiKey.OFFSET_FETCH,
        [group(Operation.DESCRIBE)],
        range(1, 10),
        lambda world, version: _stored(version, SHUT_GROUP, [OPEN]),
        lambda version: {
            f"groups[{SHUT_GROUP}].error_code"
            if version >= 8
            else "error_code"
            if version >= 2
            else f"topics[{OPEN}].partitions[0].error_code": GROUP_REFUSED
        },
    ),
    Case(
        ApiKey.OFFSET_FETCH,
        [topic(Operation.DESCRIBE)],
        range(1, 10),
        lambda world, version: _stored(version, OPEN_GROUP, [OPEN, SHUT]),
        lambda version: {
            f"{f'groups[{OPEN_GROUP}].' if version >= 8 else ''}topics[{SHUT}].partitions[0].error_code": TOPIC_REFUSED
        },
    ),
    Case(
        ApiKey.OFFSET_FETCH,
        [topic(Operation.DESCRIBE)],
        range(2, 10),
        lambda world, version: _stored(version, OPEN_GROUP, None),
        hides=SHUT,
        shows=OPEN,
    ),
    Case(
        ApiKey.FIND_COORDINATOR,
        [group(Operation.DESCRIBE)],
        range(6),
        lambda world, version: _coordinator(version, 0, SHUT_GROUP),
        lambda version: {f"coordinators[{SHUT_GROUP}].error_code" if version >= 4 else "error_code": GROUP_REFUSED},
    ),
    Case(
        ApiKey.FIND_COORDINATOR,
        [transactional_id(Operation.DESCRIBE)],
        range(1, 6),
        lambda world, version: _coordinator(version, 1, SHUT_ID),
        lambda version: {f"coordinators[{SHUT_ID}].error_code" if version >= 4 else "error_code": ID_REFUSED},
    ),
    Case(
        ApiKey.JOIN_GROUP,
        [group(Operation.READ)],
        range(10),
        lambda world, version: {
            "group_id": SHUT_GROUP,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
        {"error_code": GROUP_REFUSED},
    ),
    Case(
        ApiKey.HEARTBEAT,
        [group(Operation.READ)],
        range(5),
        lambda world, version: _MEMBER_FIELDS,
        {"error_code": GROUP_REFUSED},
    ),
    Case(
        ApiKey.LEAVE_GROUP,
        [group(Operation.READ)],
        range(6),
        lambda world, version: _left(version),
        {"error_code": GROUP_REFUSED},
    ),
    Case(
        ApiKey.SYNC_GROUP,
        [group(Operation.READ)],
        range(6),
        lambda world, version: {**_MEMBER_FIELDS, "protocol_type": "consumer", "protocol_name": "range"},
        {"error_code": GROUP_REFUSED},
    ),
    Case(
        ApiKey.DESCRIBE_GROUPS,
        [group(Operation.DESCRIBE)],
        range(6),
        lambda world, version: {"groups": [OPEN_GROUP, SHUT_GROUP]},
        {f"groups[{SHUT_GROUP}].error_code": GROUP_REFUSED},
    ),
    Case(
        ApiKey.LIST_GROUPS,
        [group(Operation.DESCRIBE), cluster(Operation.DESCRIBE)],
        range(6),
        lambda world, version: {},
        hides=SHUT_GROUP,
        shows=OPEN_GROUP,
        each_is_enough=True,
    ),
    Case(
        ApiKey.CREATE_TOPICS,
        [topic(Operation.CREATE, MADE), cluster(Operation.CREATE)],
        range(2, 8),
        _made,
        {f"topics[{MADE}].error_code": TOPIC_REFUSED},
        each_is_enough=True,
    ),
    Case(
        ApiKey.CREATE_TOPICS,
        [topic(Operation.DESCRIBE_CONFIGS, MADE)],
        range(5, 8),
        _made,
        {f"topics[{MADE}].topic_config_error_code": TOPIC_REFUSED},
    ),
    Case(
        ApiKey.DELETE_TOPICS,
        [topic(Operation.DELETE), cluster(Operation.DELETE)],
        range(1, 7),
        _deleted,
        {f"responses[{SHUT}].error_code": TOPIC_REFUSED},
    ),
    Case(
        ApiKey.DELETE_TOPICS,
        [topic(Operation.DELETE), cluster(Operation.DELETE)],
        (6,),
        lambda world, version: _deleted(world, version, by_id=True),
        {f"responses[{SHUT}].error_code": TOPIC_REFUSED},
        shows=SHUT,
    ),
    Case(
        ApiKey.DELETE_TOPICS,
        [topic(Operation.DELETE), topic(Operation.DESCRIBE), cluster(Operation.DELETE)],
        (6,),
        lambda world, version: _deleted(world, version, by_id=True),
        {f"responses[{SHUT}].error_code": TOPIC_REFUSED},
        hides=SHUT,
    ),
    Case(
        ApiKey.DELETE_TOPICS,
        [topic(Operation.DESCRIBE, MADE), cluster(Operation.DELETE)],
        (6,),
        lambda world, version: {"topics": [{"name": MADE}], "timeout_ms": 5000},
        {f"responses[{MADE}].error_code": TOPIC_REFUSED},
    ),
    Case(
        ApiKey.DELETE_RECORDS,
        [topic(Operation.DELETE)],
        range(3),
        lambda world, version: {
            "topics": _partitions(OPEN, SHUT, partition_index=0, offset=0),
            "timeout_ms": 5000,
        },
        {f"topics[{SHUT}].partitions[0].error_code": TOPIC_REFUSED},
    ),
    Case(
        ApiKey.INIT_PRODUCER_ID,
        [transactional_id(Operation.WRITE)],
        range(6),
        lambda world, version: {"transactional_id": SHUT_ID, "transaction_timeout_ms": 5000},
        {"error_code": ID_REFUSED},
    ),
    Case(
        ApiKey.INIT_PRODUCER_ID,
        [cluster(Operation.IDEMPOTENT_WRITE), topic(Operation.WRITE, "*")],
        range(6),
        lambda world, version: {"transactional_id": None, "transaction_timeout_ms": 5000},
        {"error_code": CLUSTER_REFUSED},
        each_is_enough=True,
    ),
    Case(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        [topic(Operation.DESCRIBE), cluster(Operation.CLUSTER_ACTION)],
        range(2, 5),
        lambda world, version: {
            "topics": _partitions(OPEN, SHUT, called="topic", partition=0, current_leader_epoch=-1, leader_epoch=0),
            **({"replica_id": -1} if version >= 3 else {}),
        },
        {f"topics[{SHUT}].partitions[0].error_code": TOPIC_REFUSED},
        each_is_enough=True,
    ),
    Case(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        [transactional_id(Operation.WRITE)],
        range(4),
        lambda world, version: _added(world, version, SHUT_ID, OPEN),
        {f"results_by_topic_v3_and_below[{OPEN}].results_by_partition[0].partition_error_code": ID_REFUSED},
    ),
    Case(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        [topic(Operation.WRITE)],
        range(4),
        lambda world, version: _added(world, version, OPEN_ID, OPEN, SHUT),
        {
            f"results_by_topic_v3_and_below[{SHUT}].results_by_partition[0].partition_error_code": TOPIC_REFUSED,
            f"results_by_topic_v3_and_below[{OPEN}].results_by_partition[0].partition_error_code": int(
                ErrorCode.OPERATION_NOT_ATTEMPTED
            ),
        },
    ),
    Case(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        [cluster(Operation.CLUSTER_ACTION)],
        range(4, 6),
        lambda world, version: _added(world, version, OPEN_ID, OPEN),
        {"error_code": CLUSTER_REFUSED},
    ),
    Case(
        # A broker asks for its clients, of whom it knows already that they may.
        ApiKey.ADD_PARTITIONS_TO_TXN,
        [topic(Operation.WRITE)],
        range(4, 6),
        lambda world, version: _added(world, version, OPEN_ID, SHUT),
    ),
    *(
        Case(
            ApiKey.ADD_OFFSETS_TO_TXN,
            [denied],
            range(5),
            lambda world, version, transactional=transactional, group_id=group_id: {  # type: ignore[misc]
                "transactional_id": transactional,
                "group_id": group_id,
                "producer_id": world.producer[0],
                "producer_epoch": world.producer[1],
            },
            {"error_code": code},
        )
        for denied, transactional, group_id, code in (
            (transactional_id(Operation.WRITE), SHUT_ID, OPEN_GROUP, ID_REFUSED),
            (group(Operation.READ), OPEN_ID, SHUT_GROUP, GROUP_REFUSED),
        )
    ),
    Case(
        ApiKey.END_TXN,
        [transactional_id(Operation.WRITE)],
        range(6),
        lambda world, version: {
            "transactional_id": SHUT_ID,
            "producer_id": 4711,
            "producer_epoch": 0,
            "committed": True,
        },
        {"error_code": ID_REFUSED},
    ),
    Case(
        ApiKey.WRITE_TXN_MARKERS,
        [cluster(Operation.CLUSTER_ACTION), cluster(Operation.ALTER)],
        (1,),
        _markers,
        {f"markers[4711].topics[{OPEN}].partitions[0].error_code": CLUSTER_REFUSED},
        each_is_enough=True,
    ),
    *(
        Case(
            api,
            [cluster(Operation.CLUSTER_ACTION)],
            versions,
            lambda world, version: {},
            {"error_code": CLUSTER_REFUSED},
        )
        for api, versions in (
            (ApiKey.LEADER_AND_ISR, range(2, 8)),
            (ApiKey.STOP_REPLICA, range(3, 5)),
            (ApiKey.UPDATE_METADATA, range(5, 9)),
            (ApiKey.CONTROLLED_SHUTDOWN, range(2, 4)),
            (ApiKey.ALTER_PARTITION, range(2, 4)),
            (ApiKey.ALLOCATE_PRODUCER_IDS, (0,)),
        )
    ),
    Case(
        ApiKey.TXN_OFFSET_COMMIT,
        [transactional_id(Operation.WRITE)],
        range(6),
        lambda world, version: _committed_in_transaction(world, SHUT_ID, OPEN_GROUP, OPEN),
        {f"topics[{OPEN}].partitions[0].error_code": ID_REFUSED},
    ),
    Case(
        ApiKey.TXN_OFFSET_COMMIT,
        [group(Operation.READ)],
        range(6),
        lambda world, version: _committed_in_transaction(world, OPEN_ID, SHUT_GROUP, OPEN),
        {f"topics[{OPEN}].partitions[0].error_code": GROUP_REFUSED},
    ),
    Case(
        ApiKey.TXN_OFFSET_COMMIT,
        [topic(Operation.READ)],
        range(6),
        lambda world, version: _committed_in_transaction(world, OPEN_ID, OPEN_GROUP, SHUT),
        {f"topics[{SHUT}].partitions[0].error_code": TOPIC_REFUSED},
    ),
    Case(
        ApiKey.TXN_OFFSET_COMMIT,
        [topic(Operation.READ)],
        range(5),
        lambda world, version: _committed_in_transaction(world, OPEN_ID, OPEN_GROUP, OPEN, SHUT),
        {f"topics[{SHUT}].partitions[0].error_code": TOPIC_REFUSED},
    ),
    Case(
        ApiKey.DESCRIBE_CONFIGS,
        [topic(Operation.DESCRIBE_CONFIGS)],
        range(1, 5),
        lambda world, version: {"resources": _configured(_TOPIC_CONFIGS, SHUT, configuration_keys=None)},
        {f"results[{SHUT}].error_code": TOPIC_REFUSED},
    ),
    Case(
        ApiKey.DESCRIBE_CONFIGS,
        [cluster(Operation.DESCRIBE_CONFIGS)],
        range(1, 5),
        lambda world, version: {
            "resources": _configured(_BROKER_CONFIGS, str(world.broker_id), configuration_keys=None)
        },
        {"results[1].error_code": CLUSTER_REFUSED},
    ),
    Case(
        ApiKey.DESCRIBE_CONFIGS,
        [group(Operation.DESCRIBE_CONFIGS)],
        range(1, 5),
        lambda world, version: {"resources": _configured(_GROUP_CONFIGS, SHUT_GROUP, configuration_keys=None)},
        {f"results[{SHUT_GROUP}].error_code": GROUP_REFUSED},
        is_newer_than_kafka_3_9=True,
    ),
    *(
        Case(
            api,
            [group(Operation.ALTER_CONFIGS)],
            range(2),
            lambda world, version, api=api: _altered(  # type: ignore[misc]
                _GROUP_CONFIGS, SHUT_GROUP, incremental=api is ApiKey.INCREMENTAL_ALTER_CONFIGS
            ),
            {f"responses[{SHUT_GROUP}].error_code": GROUP_REFUSED},
            is_newer_than_kafka_3_9=True,
        )
        for api in _ALTER_BOTH
    ),
    *(
        Case(
            api,
            [topic(Operation.ALTER_CONFIGS)],
            range(2),
            lambda world, version, api=api: _altered(  # type: ignore[misc]
                _TOPIC_CONFIGS, SHUT, incremental=api is ApiKey.INCREMENTAL_ALTER_CONFIGS
            ),
            {f"responses[{SHUT}].error_code": TOPIC_REFUSED},
        )
        for api in _ALTER_BOTH
    ),
    *(
        Case(
            api,
            [cluster(Operation.ALTER_CONFIGS)],
            range(2),
            lambda world, version, api=api: _altered(  # type: ignore[misc]
                _BROKER_CONFIGS, str(world.broker_id), incremental=api is ApiKey.INCREMENTAL_ALTER_CONFIGS
            ),
            {"responses[1].error_code": CLUSTER_REFUSED},
        )
        for api in _ALTER_BOTH
    ),
    Case(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        [cluster(Operation.ALTER)],
        range(1, 3),
        lambda world, version: {"dirs": [{"path": "/nowhere", "topics": [{"name": OPEN, "partitions": [0]}]}]},
        {f"results[{OPEN}].partitions[0].error_code": CLUSTER_REFUSED},
    ),
    Case(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        [cluster(Operation.ALTER)],
        [0],
        lambda world, version: {"topics": _partitions(OPEN, partition_index=0, replicas=[world.broker_id])},
        {"error_code": CLUSTER_REFUSED, f"responses[{OPEN}].partitions[0].error_code": CLUSTER_REFUSED},
    ),
    Case(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        [cluster(Operation.DESCRIBE)],
        [0],
        lambda world, version: {"topics": None},
        {"error_code": CLUSTER_REFUSED},
    ),
    Case(
        ApiKey.ELECT_LEADERS,
        [cluster(Operation.ALTER)],
        range(3),
        lambda world, version: {"topic_partitions": [{"topic": OPEN, "partitions": [0]}]},
        lambda version: {
            f"replica_election_results[{OPEN}].partition_result[0].error_code": CLUSTER_REFUSED,
            **({"error_code": CLUSTER_REFUSED} if version else {}),
        },
    ),
    Case(
        ApiKey.DESCRIBE_LOG_DIRS,
        [cluster(Operation.DESCRIBE)],
        range(1, 5),
        lambda world, version: {"topics": None},
        lambda version: {"error_code": CLUSTER_REFUSED} if version >= 3 else {},
        hides=OPEN,
    ),
    Case(
        ApiKey.CREATE_PARTITIONS,
        [topic(Operation.ALTER)],
        range(4),
        lambda world, version: {
            "topics": [{"name": SHUT, "count": 2, "assignments": None}],
            "timeout_ms": 5000,
            "validate_only": True,
        },
        {f"results[{SHUT}].error_code": TOPIC_REFUSED},
    ),
    Case(
        ApiKey.DELETE_GROUPS,
        [group(Operation.DELETE)],
        range(3),
        lambda world, version: {"groups_names": [SHUT_GROUP]},
        {f"results[{SHUT_GROUP}].error_code": GROUP_REFUSED},
    ),
    Case(
        ApiKey.OFFSET_DELETE,
        [group(Operation.DELETE)],
        (0,),
        lambda world, version: {"group_id": SHUT_GROUP, "topics": _partitions(OPEN, partition_index=0)},
        {"error_code": GROUP_REFUSED},
    ),
    Case(
        ApiKey.OFFSET_DELETE,
        [topic(Operation.READ)],
        (0,),
        lambda world, version: {"group_id": DELETED_FROM_GROUP, "topics": _partitions(OPEN, SHUT, partition_index=0)},
        {f"topics[{SHUT}].partitions[0].error_code": TOPIC_REFUSED},
    ),
    Case(
        ApiKey.OFFSET_DELETE,
        [topic(Operation.READ)],
        (0,),
        lambda world, version: {"group_id": "nobody", "topics": _partitions(SHUT, partition_index=0)},
        {"error_code": int(ErrorCode.GROUP_ID_NOT_FOUND)},
    ),
    Case(
        ApiKey.DESCRIBE_CLUSTER,
        [cluster(Operation.DESCRIBE)],
        range(2),
        lambda world, version: {"include_cluster_authorized_operations": True},
        has={"cluster_authorized_operations": 0},
    ),
    Case(
        ApiKey.DESCRIBE_PRODUCERS,
        [topic(Operation.READ)],
        (0,),
        lambda world, version: {
            "topics": [{"name": OPEN, "partition_indexes": [0]}, {"name": SHUT, "partition_indexes": [0]}]
        },
        {f"topics[{SHUT}].partitions[0].error_code": TOPIC_REFUSED},
    ),
    Case(
        ApiKey.DESCRIBE_TRANSACTIONS,
        [transactional_id(Operation.DESCRIBE)],
        (0,),
        lambda world, version: {"transactional_ids": [OPEN_ID, SHUT_ID]},
        {f"transaction_states[{SHUT_ID}].error_code": ID_REFUSED},
    ),
    Case(
        ApiKey.DESCRIBE_TRANSACTIONS,
        [topic(Operation.DESCRIBE)],
        (0,),
        lambda world, version: {"transactional_ids": [OPEN_ID]},
        hides=SHUT,
        shows=OPEN,
    ),
    Case(
        ApiKey.LIST_TRANSACTIONS,
        [transactional_id(Operation.DESCRIBE)],
        range(2),
        lambda world, version: {},
        hides=SHUT_ID,
        shows=OPEN_ID,
    ),
    Case(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        [group(Operation.READ)],
        (0,),
        lambda world, version: {
            "group_id": SHUT_GROUP,
            "rebalance_timeout_ms": 5000,
            "subscribed_topic_names": [OPEN],
            "topic_partitions": [],
        },
        {"error_code": GROUP_REFUSED},
    ),
    Case(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        [group(Operation.DESCRIBE)],
        (0,),
        lambda world, version: {"group_ids": [SHUT_GROUP]},
        {f"groups[{SHUT_GROUP}].error_code": GROUP_REFUSED},
    ),
    Case(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        [topic(Operation.DESCRIBE)],
        (0,),
        lambda world, version: {"topics": [{"name": OPEN}, {"name": SHUT}]},
        {f"topics[{SHUT}].error_code": TOPIC_REFUSED},
    ),
    Case(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        [topic(Operation.DESCRIBE)],
        (0,),
        lambda world, version: {"topics": []},
        hides=SHUT,
        shows=OPEN,
    ),
)
