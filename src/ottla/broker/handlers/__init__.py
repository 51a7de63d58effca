"""One module per API. Each ends in `HANDLER`, which names the API and the versions this broker serves of it."""

from __future__ import annotations

from importlib import import_module

from ottla.broker.handler import Handler
from ottla.wire.api_keys import ApiKey

_MODULES = (
    "add_offsets_to_txn",
    "add_partitions_to_txn",
    "allocate_producer_ids",
    "alter_configs",
    "alter_partition",
    "alter_partition_reassignments",
    "alter_replica_log_dirs",
    "api_versions",
    "consumer_group_describe",
    "consumer_group_heartbeat",
    "controlled_shutdown",
    "create_partitions",
    "create_topics",
    "delete_groups",
    "delete_records",
    "delete_topics",
    "describe_cluster",
    "describe_configs",
    "describe_groups",
    "describe_log_dirs",
    "describe_producers",
    "describe_topic_partitions",
    "describe_transactions",
    "elect_leaders",
    "end_txn",
    "fetch",
    "find_coordinator",
    "heartbeat",
    "incremental_alter_configs",
    "init_producer_id",
    "join_group",
    "leader_and_isr",
    "leave_group",
    "list_groups",
    "list_offsets",
    "list_partition_reassignments",
    "list_transactions",
    "metadata",
    "offset_commit",
    "offset_delete",
    "offset_fetch",
    "offset_for_leader_epoch",
    "produce",
    "stop_replica",
    "sync_group",
    "txn_offset_commit",
    "update_metadata",
    "write_txn_markers",
)


BETWEEN_BROKERS = frozenset(
    {
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
    }
)
"""What only brokers send to each other. One that has no others serves none of it: only a stranger would send it."""


def client_handlers() -> dict[int, Handler]:
    return {api_key: handler for api_key, handler in all_handlers().items() if api_key not in BETWEEN_BROKERS}


def all_handlers() -> dict[int, Handler]:
    handlers: dict[int, Handler] = {}
    for name in _MODULES:
        handler: Handler = import_module(f"{__name__}.{name}").HANDLER
        handlers[handler.api_key] = handler
    return handlers
