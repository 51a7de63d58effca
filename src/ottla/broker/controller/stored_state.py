"""The controller's state in the metadata store: how it is read, and which nodes each change writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.machines.cluster.controller import TakenOver
from ottla.machines.cluster.state import (
    NO_VERSION,
    Change,
    ClusterState,
    LiveBroker,
    MarkForDeletion,
    PartitionState,
    RemoveMark,
    RemoveTopic,
    TopicState,
    WritePartition,
    WriteTopic,
)
from ottla.metadata import paths
from ottla.metadata.store import Create, Delete, MetadataStore, Node, Operation, Set


class LoadedState(NamedTuple):
    state: ClusterState
    taken_over: TakenOver


async def load(store: MetadataStore) -> LoadedState:
    state = ClusterState()
    state.brokers = await load_brokers(store)
    nodes = await store.tree(paths.TOPICS)
    for path in nodes:
        if path.count("/") == paths.TOPICS.count("/") + 1:
            name = path.rsplit("/", 1)[1]
            state.topics[name] = _topic(name, nodes)
    state.pending_deletions = set(await store.children(paths.DELETE_TOPICS))
    return LoadedState(state, _since_last_written(state, nodes))


async def load_brokers(store: MetadataStore) -> Mapping[int, LiveBroker]:
    brokers: dict[int, LiveBroker] = {}
    for path, node in (await store.tree(paths.BROKER_IDS)).items():
        if path != paths.BROKER_IDS:
            stored = paths.BrokerNode.decode(node.data)
            broker_id = int(path.rsplit("/", 1)[1])
            brokers[broker_id] = LiveBroker(node.created_id, tuple(stored.endpoints), stored.rack, stored.first_epoch)
    return brokers


async def take_log_dir_events(store: MetadataStore) -> set[int]:
    """Brokers that have told of a failed directory since the last look."""
    nodes = await store.tree(paths.LOG_DIR_EVENTS)
    told = {path: paths.decode_log_dir_event(node.data) for path, node in nodes.items() if path != paths.LOG_DIR_EVENTS}
    if told:
        await store.commit([Delete(path) for path in told])
    return set(told.values())


async def load_topic(store: MetadataStore, name: str) -> TopicState | None:
    nodes = await store.tree(paths.topic(name))
    return _topic(name, nodes) if paths.topic(name) in nodes else None


def _topic(name: str, nodes: Mapping[str, Node]) -> TopicState:
    node = nodes[paths.topic(name)]
    topic = paths.TopicNode.decode(node.data)
    partitions: dict[int, PartitionState] = {}
    for index, replicas in topic.partitions.items():
        partitions[index] = PartitionState(
            tuple(replicas),
            adding=tuple(topic.adding.get(index, ())),
            removing=tuple(topic.removing.get(index, ())),
        )
        found = nodes.get(paths.partition_state(name, index))
        if found is not None:
            stored = paths.PartitionStateNode.decode(found.data)
            partitions[index] = partitions[index]._replace(
                leader=stored.leader,
                leader_epoch=stored.leader_epoch,
                isr=tuple(stored.isr),
                partition_epoch=found.version,
            )
    return TopicState(topic.topic_id, partitions, node.version)


def _since_last_written(state: ClusterState, nodes: Mapping[str, Node]) -> TakenOver:
    restarted: dict[TopicPartition, frozenset[int]] = {}
    returned: dict[TopicPartition, frozenset[int]] = {}
    for tp, partition in state.partitions():
        node = nodes.get(paths.partition_state(tp.topic, tp.partition))
        if node is not None:
            live = {member: state.brokers[member] for member in partition.isr if member in state.brokers}
            anew = {member for member, broker in live.items() if broker.epoch > node.modified_id}
            restarted[tp] = frozenset(member for member in anew if live[member].process_epoch > node.modified_id)
            returned[tp] = frozenset(anew - restarted[tp])
    return TakenOver(restarted, returned)


def topic_of(path: str) -> str | None:
    """The topic whose state a node holds, if it does."""
    prefix = paths.TOPICS + "/"
    return path[len(prefix) :].split("/", 1)[0] if path.startswith(prefix) else None


async def operations_of(change: Change, controller_epoch: int, store: MetadataStore) -> list[Operation]:
    """What a change writes; if it has a version, that of the first operation. Nothing for what is only noted."""
    match change:
        case WriteTopic():
            return await _write_topic(change, store)
        case WritePartition(tp, leader, leader_epoch, isr, expected_epoch):
            data = paths.PartitionStateNode(leader, leader_epoch, list(isr), controller_epoch).encode()
            path = paths.partition_state(*tp)
            return [Create(path, data) if expected_epoch == NO_VERSION else Set(path, data, expected_epoch)]
        case MarkForDeletion(topic):
            return [Create(_mark(topic))]
        case RemoveTopic(topic, partitions):
            return await _remove_topic(topic, partitions, store)
        case RemoveMark(topic):
            return [Delete(_mark(topic))]
        case _:
            return []


async def _write_topic(change: WriteTopic, store: MetadataStore) -> list[Operation]:
    path = paths.topic(change.name)
    assignment, adding, removing = (
        {index: list(replicas) for index, replicas in replicas_by_partition.items()}
        for replicas_by_partition in (change.assignment, change.adding, change.removing)
    )
    data = paths.TopicNode(change.topic_id, assignment, adding, removing).encode()
    if change.expected_version != NO_VERSION:
        existing = set(await store.children(f"{path}/partitions"))
        added = [Create(f"{path}/partitions/{index}") for index in assignment if str(index) not in existing]
        return [Set(path, data, change.expected_version), *added]
    config = paths.encode_config(dict(change.configs or {}))
    config_path = paths.topic_config(change.name)
    has_config = await store.get(config_path) is not None
    return [
        Create(path, data),
        Create(f"{path}/partitions"),
        *(Create(f"{path}/partitions/{index}") for index in assignment),
        Set(config_path, config) if has_config else Create(config_path, config),
    ]


async def _remove_topic(topic: str, partitions: tuple[int, ...], store: MetadataStore) -> list[Operation]:
    path = paths.topic(topic)
    operations: list[Operation] = []
    for index in partitions:
        operations.append(Delete(paths.partition_state(topic, index)))
        operations.append(Delete(f"{path}/partitions/{index}"))
    operations += [Delete(f"{path}/partitions"), Delete(path)]
    if await store.get(paths.topic_config(topic)) is not None:
        operations.append(Delete(paths.topic_config(topic)))
    return [*operations, Delete(_mark(topic))]


def _mark(topic: str) -> str:
    return f"{paths.DELETE_TOPICS}/{topic}"
