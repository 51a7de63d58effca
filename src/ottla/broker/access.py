"""Which operation on which resource each API needs, and how its reply says that it was refused.

The only place where this stands: handlers ask by this table (`RequestContext.may`), the tests of refusals go through
it, and docs/authorization.md is written from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from ottla.broker.authorizer import Operation, ResourceType
from ottla.wire.api_keys import ApiKey

_CLUSTER, _GROUP, _TOPIC = ResourceType.CLUSTER, ResourceType.GROUP, ResourceType.TOPIC
_TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID


class Refusal(Enum):
    """Where a client finds out. The texts are those of the documentation."""

    WHOLE_REPLY = "the error of the reply"
    ENTRY = "the error of the entry"
    ITS_PARTITIONS = "the error of each of its partitions"
    ALL_PARTITIONS = "the error of every partition"
    LEFT_OUT = "it is left out of the reply"
    NO_OPERATIONS = "no authorised operations in the reply"
    NO_CONFIGS = "the reply has no settings of the topic, and says why"


class Need(NamedTuple):
    operation: Operation
    resource_type: ResourceType
    refusal: Refusal
    when: str = ""


_COMMITS = (
    Need(Operation.READ, _GROUP, Refusal.ALL_PARTITIONS),
    Need(Operation.READ, _TOPIC, Refusal.ITS_PARTITIONS),
)
_MEMBER = (Need(Operation.READ, _GROUP, Refusal.WHOLE_REPLY),)
_BETWEEN_BROKERS = (Need(Operation.CLUSTER_ACTION, _CLUSTER, Refusal.WHOLE_REPLY),)
_ALTERS_CONFIGS = (
    Need(Operation.ALTER_CONFIGS, _TOPIC, Refusal.ENTRY),
    Need(Operation.ALTER_CONFIGS, _CLUSTER, Refusal.ENTRY, "for settings of brokers"),
    Need(Operation.ALTER_CONFIGS, _GROUP, Refusal.ENTRY),
)

NEEDS: dict[ApiKey, tuple[Need, ...]] = {
    ApiKey.PRODUCE: (
        Need(Operation.WRITE, _TRANSACTIONAL_ID, Refusal.ALL_PARTITIONS, "in a transaction"),
        Need(Operation.WRITE, _TOPIC, Refusal.ITS_PARTITIONS),
    ),
    ApiKey.FETCH: (
        Need(Operation.READ, _TOPIC, Refusal.ITS_PARTITIONS),
        Need(Operation.CLUSTER_ACTION, _CLUSTER, Refusal.ALL_PARTITIONS, "for followers, instead"),
    ),
    ApiKey.LIST_OFFSETS: (Need(Operation.DESCRIBE, _TOPIC, Refusal.ITS_PARTITIONS),),
    ApiKey.METADATA: (
        Need(Operation.DESCRIBE, _TOPIC, Refusal.ENTRY, "left out where all topics are asked for"),
        Need(Operation.CREATE, _TOPIC, Refusal.ENTRY, "to create a missing topic"),
        Need(Operation.CREATE, _CLUSTER, Refusal.ENTRY, "instead of CREATE on the topic"),
        Need(Operation.DESCRIBE, _CLUSTER, Refusal.NO_OPERATIONS),
    ),
    ApiKey.LEADER_AND_ISR: _BETWEEN_BROKERS,
    ApiKey.STOP_REPLICA: _BETWEEN_BROKERS,
    ApiKey.UPDATE_METADATA: _BETWEEN_BROKERS,
    ApiKey.CONTROLLED_SHUTDOWN: _BETWEEN_BROKERS,
    ApiKey.OFFSET_COMMIT: _COMMITS,
    ApiKey.OFFSET_FETCH: (
        Need(Operation.DESCRIBE, _GROUP, Refusal.WHOLE_REPLY, "from version 8 on the error of the group"),
        Need(Operation.DESCRIBE, _TOPIC, Refusal.ITS_PARTITIONS, "left out where all offsets are asked for"),
    ),
    ApiKey.FIND_COORDINATOR: (
        Need(Operation.DESCRIBE, _GROUP, Refusal.ENTRY),
        Need(Operation.DESCRIBE, _TRANSACTIONAL_ID, Refusal.ENTRY),
    ),
    ApiKey.JOIN_GROUP: _MEMBER,
    ApiKey.HEARTBEAT: _MEMBER,
    ApiKey.LEAVE_GROUP: _MEMBER,
    ApiKey.SYNC_GROUP: _MEMBER,
    ApiKey.DESCRIBE_GROUPS: (Need(Operation.DESCRIBE, _GROUP, Refusal.ENTRY),),
    ApiKey.LIST_GROUPS: (
        Need(Operation.DESCRIBE, _GROUP, Refusal.LEFT_OUT),
        Need(Operation.DESCRIBE, _CLUSTER, Refusal.LEFT_OUT, "instead, to see all groups"),
    ),
    ApiKey.API_VERSIONS: (),
    ApiKey.CREATE_TOPICS: (
        Need(Operation.CREATE, _TOPIC, Refusal.ENTRY),
        Need(Operation.CREATE, _CLUSTER, Refusal.ENTRY, "instead of CREATE on the topic"),
        Need(Operation.DESCRIBE_CONFIGS, _TOPIC, Refusal.NO_CONFIGS),
    ),
    ApiKey.DELETE_TOPICS: (
        Need(Operation.DELETE, _TOPIC, Refusal.ENTRY),
        Need(Operation.DESCRIBE, _TOPIC, Refusal.ENTRY, "to be told the name of an id, and whether a topic exists"),
        Need(Operation.DELETE, _CLUSTER, Refusal.ENTRY, "instead of both"),
    ),
    ApiKey.DELETE_RECORDS: (Need(Operation.DELETE, _TOPIC, Refusal.ITS_PARTITIONS),),
    ApiKey.INIT_PRODUCER_ID: (
        Need(Operation.WRITE, _TRANSACTIONAL_ID, Refusal.WHOLE_REPLY, "with a transactional id"),
        Need(Operation.IDEMPOTENT_WRITE, _CLUSTER, Refusal.WHOLE_REPLY, "without one"),
        Need(Operation.WRITE, _TOPIC, Refusal.WHOLE_REPLY, "on any topic, instead of IDEMPOTENT_WRITE (KIP-679)"),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        Need(Operation.DESCRIBE, _TOPIC, Refusal.ITS_PARTITIONS),
        Need(Operation.CLUSTER_ACTION, _CLUSTER, Refusal.ITS_PARTITIONS, "instead"),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        Need(Operation.WRITE, _TRANSACTIONAL_ID, Refusal.ALL_PARTITIONS, "below version 4"),
        Need(Operation.WRITE, _TOPIC, Refusal.ITS_PARTITIONS, "below version 4; the others are not attempted"),
        Need(Operation.CLUSTER_ACTION, _CLUSTER, Refusal.WHOLE_REPLY, "from version 4 on, for brokers, instead"),
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: (
        Need(Operation.WRITE, _TRANSACTIONAL_ID, Refusal.WHOLE_REPLY),
        Need(Operation.READ, _GROUP, Refusal.WHOLE_REPLY),
    ),
    ApiKey.END_TXN: (Need(Operation.WRITE, _TRANSACTIONAL_ID, Refusal.WHOLE_REPLY),),
    ApiKey.WRITE_TXN_MARKERS: (
        Need(Operation.CLUSTER_ACTION, _CLUSTER, Refusal.ALL_PARTITIONS),
        Need(Operation.ALTER, _CLUSTER, Refusal.ALL_PARTITIONS, "instead, for administrators (KIP-664)"),
    ),
    ApiKey.TXN_OFFSET_COMMIT: (Need(Operation.WRITE, _TRANSACTIONAL_ID, Refusal.ALL_PARTITIONS), *_COMMITS),
    ApiKey.DESCRIBE_CONFIGS: (
        Need(Operation.DESCRIBE_CONFIGS, _TOPIC, Refusal.ENTRY),
        Need(Operation.DESCRIBE_CONFIGS, _CLUSTER, Refusal.ENTRY, "for settings of brokers"),
        Need(Operation.DESCRIBE_CONFIGS, _GROUP, Refusal.ENTRY),
    ),
    ApiKey.ALTER_CONFIGS: _ALTERS_CONFIGS,
    ApiKey.ALTER_REPLICA_LOG_DIRS: (Need(Operation.ALTER, _CLUSTER, Refusal.ALL_PARTITIONS),),
    ApiKey.DESCRIBE_LOG_DIRS: (Need(Operation.DESCRIBE, _CLUSTER, Refusal.WHOLE_REPLY),),
    ApiKey.CREATE_PARTITIONS: (Need(Operation.ALTER, _TOPIC, Refusal.ENTRY),),
    ApiKey.DELETE_GROUPS: (Need(Operation.DELETE, _GROUP, Refusal.ENTRY),),
    ApiKey.ELECT_LEADERS: (Need(Operation.ALTER, _CLUSTER, Refusal.ALL_PARTITIONS, "and the error of the reply"),),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _ALTERS_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (Need(Operation.ALTER, _CLUSTER, Refusal.WHOLE_REPLY),),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (Need(Operation.DESCRIBE, _CLUSTER, Refusal.WHOLE_REPLY),),
    ApiKey.OFFSET_DELETE: (
        Need(Operation.DELETE, _GROUP, Refusal.WHOLE_REPLY),
        Need(Operation.READ, _TOPIC, Refusal.ITS_PARTITIONS),
    ),
    ApiKey.DESCRIBE_CLUSTER: (Need(Operation.DESCRIBE, _CLUSTER, Refusal.NO_OPERATIONS),),
    ApiKey.DESCRIBE_PRODUCERS: (Need(Operation.READ, _TOPIC, Refusal.ITS_PARTITIONS),),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        Need(Operation.DESCRIBE, _TRANSACTIONAL_ID, Refusal.ENTRY),
        Need(Operation.DESCRIBE, _TOPIC, Refusal.LEFT_OUT),
    ),
    ApiKey.LIST_TRANSACTIONS: (Need(Operation.DESCRIBE, _TRANSACTIONAL_ID, Refusal.LEFT_OUT),),
    ApiKey.ALTER_PARTITION: _BETWEEN_BROKERS,
    ApiKey.ALLOCATE_PRODUCER_IDS: _BETWEEN_BROKERS,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _MEMBER,
    ApiKey.CONSUMER_GROUP_DESCRIBE: (Need(Operation.DESCRIBE, _GROUP, Refusal.ENTRY),),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        Need(Operation.DESCRIBE, _TOPIC, Refusal.ENTRY, "left out where all topics are asked for"),
    ),
}

BEFORE_AUTHENTICATION = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
"""All that a peer may ask before it has said who it is."""


def _defaults() -> Iterator[tuple[tuple[int, ResourceType], Operation]]:
    for api_key, needs in NEEDS.items():
        for need in reversed(needs):
            yield (int(api_key), need.resource_type), need.operation


_DEFAULTS = dict(_defaults())
_NEEDED = {(int(api_key), need.operation, need.resource_type) for api_key, needs in NEEDS.items() for need in needs}


def needed_operation(api_key: int, resource_type: ResourceType) -> Operation:
    """What the API does with such a resource; where it does several things, the first of its row."""
    return _DEFAULTS[api_key, resource_type]


def check_is_needed(api_key: int, operation: Operation, resource_type: ResourceType) -> None:
    """A handler that asks for what the table does not name is a mistake: nobody would know that the API needs it."""
    if (api_key, operation, resource_type) not in _NEEDED:
        raise LookupError(f"the table of needs has no {operation.name} on {resource_type.name} for api {api_key}")
