"""Makes the topics of directories that another broker has left known to a metadata store that knows no topics.

For a broker that is alone. In a cluster the store is what all of them share, and knows the topics already.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from ottla.base.errors import InvalidConfigError, StartError
from ottla.base.ids import Ids
from ottla.base.types import NIL_UUID
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.config.topics import TOPIC_OPTIONS
from ottla.broker.internal_topics import internal_topic
from ottla.log.found_topics import FoundTopic, find_topics
from ottla.log.log_dir import LogDirs
from ottla.machines.cluster.topic_names import INTERNAL_TOPICS
from ottla.metadata import paths
from ottla.metadata.store import Create, MetadataStore, Operation, Set

log = logging.getLogger(__name__)

_KEEP_ALL = {"retention.ms": "-1", "retention.bytes": "-1"}


async def adopt_topics(store: MetadataStore, log_dirs: LogDirs, broker_id: int, config: BrokerConfig, ids: Ids) -> None:
    """Raises StartError if this broker has only a part of them."""
    if not config.is_a_cluster_of_its_own or await store.children(paths.TOPICS):
        return
    found = await asyncio.to_thread(find_topics, log_dirs.paths)
    for name in found.unknown:
        log.warning("topic %s is left alone: the cluster that its directories are from does not know it", name)
    for topic in found.topics:
        _require_whole(topic)
    if not found.topics:
        return
    operations: list[Operation] = []
    for topic in found.topics:
        operations += await _operations(store, topic, broker_id, _configs_of(topic, config), ids)
    if found.next_producer_id:
        block = paths.encode_producer_id_block(broker_id, 0, found.next_producer_id - 1)
        operations.append(Set(paths.PRODUCER_ID_BLOCK, block))
    await store.commit(operations)
    partitions = sum(topic.partition_count for topic in found.topics)
    log.info(
        "%d topics with %d partitions were found in the log directories and are served from now on",
        len(found.topics),
        partitions,
    )
    guessed = [topic.name for topic in found.topics if topic.configs is None and topic.name not in INTERNAL_TOPICS]
    if guessed:
        log.warning(
            "settings of topics are not in the log directories: nothing of %s is deleted by age or size "
            "(retention.ms=-1) until you say so, with ottla configs",
            ", ".join(guessed),
        )


def _require_whole(topic: FoundTopic) -> None:
    if topic.missing:
        raise StartError(
            f"the log directories have {len(topic.leader_epochs)} of the {topic.partition_count} partitions of topic "
            f"{topic.name}: it was spread over several brokers, and this one is alone; give it the zookeeper.connect "
            "of its cluster, or have one broker hold all of it first, or remove its directories"
        )


def _configs_of(topic: FoundTopic, config: BrokerConfig) -> dict[str, str]:
    if topic.configs is not None:
        return _understood(topic.name, topic.configs)
    if topic.name in INTERNAL_TOPICS:
        return dict(internal_topic(topic.name, config).configs)
    return {**_KEEP_ALL, **({"cleanup.policy": "compact"} if topic.was_compacted else {})}


def _understood(name: str, configs: Mapping[str, str]) -> dict[str, str]:
    kept = {}
    for key, value in configs.items():
        try:
            option = TOPIC_OPTIONS.find(key)
            refusal = option.refusal(option.parse(value))
        except InvalidConfigError as e:
            refusal = e.message
        if refusal is None:
            kept[key] = value
        else:
            log.warning("a setting of topic %s is left out: %s", name, refusal)
    return kept


async def _operations(
    store: MetadataStore, topic: FoundTopic, broker_id: int, configs: dict[str, str], ids: Ids
) -> list[Operation]:
    topic_id = ids.uuid() if topic.topic_id == NIL_UUID else topic.topic_id
    replicas = {index: [broker_id] for index in topic.leader_epochs}
    path, config_path = paths.topic(topic.name), paths.topic_config(topic.name)
    stored = paths.encode_config(configs)
    operations: list[Operation] = [
        Create(path, paths.TopicNode(topic_id, replicas, {}, {}).encode()),
        Create(f"{path}/partitions"),
        Create(config_path, stored) if await store.get(config_path) is None else Set(config_path, stored),
    ]
    for index, epoch in topic.leader_epochs.items():
        # The controller elects this broker under the next epoch.
        state = paths.PartitionStateNode(broker_id, max(epoch, 0), [broker_id], 0)
        operations += [
            Create(f"{path}/partitions/{index}"),
            Create(paths.partition_state(topic.name, index), state.encode()),
        ]
    return operations
