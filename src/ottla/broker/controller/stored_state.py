"""The controller's state in the metadata store: how it is read, and which nodes each change writes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from ottla.base.errors import ErrorCode, KafkaError
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
from ottla.machines.cluster.topic_names import why_illegal
from ottla.metadata import paths
from ottla.metadata.store import Check, Create, Delete, MetadataStore, Node, Operation, Set

log = logging.getLogger(__name__)

T = TypeVar("T")


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
            try:
                state.topics[name] = _topic(name, nodes)
            except paths.MalformedNodeError as e:
                log.error("topic %r is set aside until its node is mended: %s", name, e)
    state.pending_deletions = set(await store.children(paths.DELETE_TOPICS))
    return LoadedState(state, _since_last_written(state, nodes))


async def load_brokers(store: MetadataStore) -> Mapping[int, LiveBroker]:
    brokers: dict[int, LiveBroker] = {}
    for path, node in (await store.tree(paths.BROKER_IDS)).items():
        if path == paths.BROKER_IDS:
            continue
        name = path.rsplit("/", 1)[1]
        try:
            stored = paths.BrokerNode.decode(node.data)
            brokers[int(name)] = LiveBroker(
                node.created_id,
                tuple(stored.endpoints),
                stored.rack,
                stored.first_epoch,
                stored.was_stopped_cleanly,
            )
        except (paths.MalformedNodeError, ValueError) as e:
            log.error("broker %s is left out, for its node %s cannot be used: %s", name, path, e)
    return brokers


async def take_log_dir_events(store: MetadataStore, guard: Check) -> set[int]:
    """Brokers that have told of a failed directory since the last look. Whoever is not the controller any more is
    refused, or the next one would never hear of them."""
    nodes = await store.tree(paths.LOG_DIR_EVENTS)
    nodes.pop(paths.LOG_DIR_EVENTS, None)
    told = set()
    for path, node in nodes.items():
        try:
            told.add(paths.decode_log_dir_event(node.data))
        except paths.MalformedNodeError as e:
            log.error("%s says nothing that could be understood: %s", path, e)
    if nodes:
        await store.commit([guard, *(Delete(path) for path in nodes)])
    return told


async def load_topic(store: MetadataStore, name: str) -> TopicState | None:
    """Raises MalformedNodeError, which names the node."""
    nodes = await store.tree(paths.topic(name))
    return _topic(name, nodes) if paths.topic(name) in nodes else None


async def reload_topic(store: MetadataStore, state: ClusterState, name: str) -> None:
    """Raises KafkaError if it cannot be used as it is stored; the state does not have it then."""
    try:
        topic = await load_topic(store, name)
    except paths.MalformedNodeError as e:
        state.topics.pop(name, None)
        raise KafkaError(
            f"topic '{name}' cannot be used until its node in the metadata store is mended: {e}",
            code=ErrorCode.UNKNOWN_SERVER_ERROR,
        ) from e
    if topic is None:
        state.topics.pop(name, None)
    else:
        state.topics[name] = topic


def _topic(name: str, nodes: Mapping[str, Node]) -> TopicState:
    node = nodes[paths.topic(name)]
    illegal = why_illegal(name)
    if illegal is not None:
        # Brokers would make a directory of it.
        raise paths.MalformedNodeError(f"{paths.topic(name)}: {illegal}")
    topic = _decoded(paths.TopicNode.decode, paths.topic(name), node)
    partitions: dict[int, PartitionState] = {}
    for index, replicas in topic.partitions.items():
        partitions[index] = PartitionState(
            tuple(replicas),
            adding=tuple(topic.adding.get(index, ())),
            removing=tuple(topic.removing.get(index, ())),
        )
        path = paths.partition_state(name, index)
        found = nodes.get(path)
        if found is not None:
            stored = _decoded(paths.PartitionStateNode.decode, path, found)
            partitions[index] = partitions[index]._replace(
                leader=stored.leader,
                leader_epoch=stored.leader_epoch,
                isr=tuple(stored.isr),
                partition_epoch=found.version,
            )
    return TopicState(topic.topic_id, partitions, node.version)


def _decoded(decode: Callable[[bytes], T], path: str, node: Node) -> T:
    try:
        return decode(node.data)
    except paths.MalformedNodeError as e:
        raise paths.MalformedNodeError(f"{path}: {e}") from None


def _since_last_written(state: ClusterState, nodes: Mapping[str, Node]) -> TakenOver:
    restarted: dict[TopicPartition, frozenset[int]] = {}
    returned: dict[TopicPartition, frozenset[int]] = {}
    for tp, partition in state.partitions():
        node = nodes.get(paths.partition_state(tp.topic, tp.partition))
        if node is not None:
            live = {member: state.brokers[member] for member in partition.isr if member in state.brokers}
            anew = {member for member, broker in live.items() if broker.epoch > node.modified_id}
            restarted[tp] = frozenset(member for member in anew if live[member].may_lack_records_of(node.modified_id))
            returned[tp] = frozenset(anew - restarted[tp])
    return TakenOver(restarted, returned)


def topic_of(path: str) -> str | None:
    """The topic whose state a node holds, if it does."""
    prefix = paths.TOPICS + "/"
    return path[len(prefix) :].split("/", 1)[0] if path.startswith(prefix) else None


class Writing:
    """What changes write, for one decision: it remembers which nodes of partitions are there."""

    def __init__(self, store: MetadataStore, controller_epoch: int) -> None:
        self._store = store
        self._controller_epoch = controller_epoch
        self._partitions: dict[str, set[str]] = {}

    async def operations_of(self, change: Change) -> list[Operation]:
        """If the change has a version, that of the first operation. Nothing for what is only noted."""
        match change:
            case WriteTopic():
                return await self._write_topic(change)
            case WritePartition(tp, leader, leader_epoch, isr, expected_epoch):
                data = paths.PartitionStateNode(leader, leader_epoch, list(isr), self._controller_epoch).encode()
                path = paths.partition_state(*tp)
                if expected_epoch != NO_VERSION:
                    return [Set(path, data, expected_epoch)]
                return [*await self._make_room(tp), Create(path, data)]
            case MarkForDeletion(topic, is_stored):
                return [] if is_stored else [Create(_mark(topic))]
            case RemoveTopic(topic):
                return await self._remove_topic(topic)
            case RemoveMark(topic):
                return [Delete(_mark(topic))]
            case _:
                return []

    async def _write_topic(self, change: WriteTopic) -> list[Operation]:
        path = paths.topic(change.name)
        assignment, adding, removing = (
            {index: list(replicas) for index, replicas in replicas_by_partition.items()}
            for replicas_by_partition in (change.assignment, change.adding, change.removing)
        )
        data = paths.TopicNode(change.topic_id, assignment, adding, removing).encode()
        if change.expected_version != NO_VERSION:
            return [Set(path, data, change.expected_version)]
        self._partitions[change.name] = set()
        config = paths.encode_config(dict(change.configs or {}))
        config_path = paths.topic_config(change.name)
        has_config = await self._store.get(config_path) is not None
        return [
            Create(path, data),
            Create(_partitions(change.name)),
            Set(config_path, config) if has_config else Create(config_path, config),
        ]

    async def _make_room(self, tp: TopicPartition) -> list[Operation]:
        """Nodes above a partition's first state. A controller that stopped half-way may have left some."""
        operations: list[Operation] = []
        if tp.topic not in self._partitions:
            if await self._store.get(_partitions(tp.topic)) is None:
                operations.append(Create(_partitions(tp.topic)))
            self._partitions[tp.topic] = set(await self._store.children(_partitions(tp.topic)))
        if str(tp.partition) not in self._partitions[tp.topic]:
            operations.append(Create(f"{_partitions(tp.topic)}/{tp.partition}"))
        return operations

    async def _remove_topic(self, topic: str) -> list[Operation]:
        """All there is, from the leaves on; a controller before this one may have removed a part of it."""
        nodes = await self._store.tree(paths.topic(topic))
        operations: list[Operation] = [Delete(path) for path in sorted(nodes, reverse=True)]
        if await self._store.get(paths.topic_config(topic)) is not None:
            operations.append(Delete(paths.topic_config(topic)))
        return [*operations, Delete(_mark(topic))]


def _partitions(topic: str) -> str:
    return f"{paths.topic(topic)}/partitions"


def _mark(topic: str) -> str:
    return f"{paths.DELETE_TOPICS}/{topic}"
