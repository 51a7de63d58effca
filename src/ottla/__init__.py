"""Ottla: an event-streaming platform that speaks Kafka's wire protocol.

The client library is here by its short names (`ottla.Producer`, `ottla.aio.Producer`), and is loaded when it is first
asked for: a broker never loads it. The names and their types are in `__init__.pyi`.
"""

from __future__ import annotations

import sys
from types import ModuleType

__version__ = "0.1.0"

_HOMES = {
    "Admin": "ottla.client.sync",
    "AdminKeywords": "ottla.client.core.keywords",
    "AppKeywords": "ottla.client.core.keywords",
    "ConsumerKeywords": "ottla.client.core.keywords",
    "ProducerKeywords": "ottla.client.core.keywords",
    "App": "ottla.client.app",
    "QUOTA_ANY": "ottla.client.core.admin.access_types",
    "QUOTA_DEFAULT": "ottla.client.core.admin.access_types",
    "AclBinding": "ottla.client.core.admin.access_types",
    "AclFilter": "ottla.client.core.admin.access_types",
    "AclOperation": "ottla.base.acls",
    "AclPattern": "ottla.base.acls",
    "AclPermission": "ottla.base.acls",
    "AclResourceType": "ottla.base.acls",
    "QuotaEntity": "ottla.client.core.admin.access_types",
    "QuotaScope": "ottla.client.core.admin.access_types",
    "ScramDeletion": "ottla.client.core.admin.access_types",
    "ScramMechanism": "ottla.client.core.admin.access_types",
    "ScramUpsertion": "ottla.client.core.admin.access_types",
    "ConfigChange": "ottla.client.core.admin.types",
    "ConfigOperation": "ottla.client.core.admin.types",
    "ConfigResource": "ottla.client.core.admin.types",
    "ConfigSource": "ottla.client.core.admin.types",
    "ElectionType": "ottla.client.core.admin.types",
    "HangingTransaction": "ottla.client.core.admin.types",
    "NewPartitions": "ottla.client.core.admin.types",
    "NewTopic": "ottla.client.core.admin.types",
    "OffsetSpec": "ottla.client.core.admin.types",
    "PartitionReassignment": "ottla.client.core.admin.types",
    "ResourceType": "ottla.client.core.admin.types",
    "TopicPartitionReplica": "ottla.client.core.admin.types",
    "Outcomes": "ottla.client.core.admin.outcomes",
    "Consumer": "ottla.client.sync",
    "ConsumerInterceptor": "ottla.client.core.group.rebalance",
    "ConsumerRecord": "ottla.client.core.consumer.record",
    "GroupAssignor": "ottla.client.core.group.protocol",
    "Membership": "ottla.client.core.consumer.offset_requests",
    "OffsetAndMetadata": "ottla.client.core.consumer.cursors",
    "ParallelConsumer": "ottla.client.sync",
    "Retries": "ottla.client.core.processing.parallel",
    "RebalanceListener": "ottla.client.core.group.rebalance",
    "TopicPartition": "ottla.base.types",
    "Partitioner": "ottla.client.core.producer.partitioners",
    "RoundRobin": "ottla.client.core.producer.partitioners",
    "PreparedTransaction": "ottla.client.core.producer.transaction",
    "Producer": "ottla.client.sync",
    "ProducerInterceptor": "ottla.client.core.producer.record_intake",
    "ProducerRecord": "ottla.client.core.producer.record_intake",
    "SendFuture": "ottla.client.sync",
    "SentRows": "ottla.client.core.producer.encoded_batch",
    "TableFuture": "ottla.client.sync",
    "RecordMetadata": "ottla.client.core.producer.batch",
    "BytesSerde": "ottla.client.serdes.formats",
    "DoubleSerde": "ottla.client.serdes.formats",
    "FloatSerde": "ottla.client.serdes.formats",
    "IntegerSerde": "ottla.client.serdes.formats",
    "JsonSerde": "ottla.client.serdes.formats",
    "LongSerde": "ottla.client.serdes.formats",
    "ShortSerde": "ottla.client.serdes.formats",
    "StringSerde": "ottla.client.serdes.formats",
    "AvroSerde": "ottla.client.serdes.avro",
    "SchemaRegistry": "ottla.client.serdes.registry",
    "aio": "ottla.client.aio",
    "errors": "ottla.client.errors",
}

__all__ = [*_HOMES]


class _Unloaded(ModuleType):
    """Lets `import ottla.aio` be written, and loads what is behind it once something of it is asked for."""

    def __getattr__(self, name: str) -> object:
        import importlib

        module = importlib.import_module(_HOMES[self.__name__.rpartition(".")[2]])
        sys.modules[self.__name__] = module
        return getattr(module, name)


for _name in ("aio", "errors"):
    sys.modules[f"{__name__}.{_name}"] = _Unloaded(f"{__name__}.{_name}")


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'ottla' has no attribute {name!r}")
    import importlib

    module = importlib.import_module(home)
    found: object = module if home.endswith(f".{name}") else getattr(module, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
