"""One module per API. Each ends in `HANDLER`, which names the API and the versions this broker serves of it."""

from __future__ import annotations

from importlib import import_module

from ottla.broker.handler import Handler

_MODULES = (
    "alter_configs",
    "api_versions",
    "create_partitions",
    "create_topics",
    "delete_records",
    "delete_topics",
    "describe_cluster",
    "describe_configs",
    "describe_log_dirs",
    "describe_producers",
    "describe_topic_partitions",
    "fetch",
    "incremental_alter_configs",
    "init_producer_id",
    "list_offsets",
    "metadata",
    "offset_for_leader_epoch",
    "produce",
)


def all_handlers() -> dict[int, Handler]:
    handlers: dict[int, Handler] = {}
    for name in _MODULES:
        handler: Handler = import_module(f"{__name__}.{name}").HANDLER
        handlers[handler.api_key] = handler
    return handlers
