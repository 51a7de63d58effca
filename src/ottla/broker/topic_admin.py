"""Creating, growing and deleting topics, as the controller does it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import NIL_UUID, TopicPartition, Uuid, random_uuid
from ottla.broker.cluster_state import PartitionState, TopicState
from ottla.broker.controller import Controller
from ottla.machines.cluster.election import first_leader
from ottla.machines.cluster.placement import check_assignment, place_replicas
from ottla.machines.cluster.topic_names import colliding_name, validate_name
from ottla.metadata import paths
from ottla.metadata.store import Create, Delete, Operation, Set

MAX_PARTITIONS_PER_REQUEST = 10_000
"""As many new partitions as one request may ask for: a typing error must not make a million directories."""


@dataclass
class NewTopic:
    name: str
    partitions: int
    replication_factor: int
    assignment: dict[int, list[int]] = field(default_factory=dict)
    """Replicas by partition, if the caller chose them; then `partitions` and `replication_factor` are -1."""
    configs: dict[str, str] = field(default_factory=dict)


@dataclass
class CreatedTopic:
    topic_id: Uuid
    partitions: int
    replication_factor: int


class TopicAdmin:
    def __init__(
        self,
        controller: Controller,
        *,
        validate_configs: Callable[[Mapping[str, str]], None],
        randomness: random.Random,
    ) -> None:
        self._controller = controller
        self._validate_configs = validate_configs
        self._random = randomness

    async def create(self, new: NewTopic, *, validate_only: bool = False) -> CreatedTopic:
        controller = self._controller
        controller.require_active()
        async with controller.mutation:
            self._check_name_is_free(new.name)
            self._validate_configs(new.configs)
            assignment = self._assignment(new)
            created = CreatedTopic(
                NIL_UUID if validate_only else random_uuid(), len(assignment), len(next(iter(assignment.values())))
            )
            if not validate_only:
                await self._write_new_topic(new, created.topic_id, assignment)
            return created

    def _check_name_is_free(self, name: str) -> None:
        state = self._controller.state
        validate_name(name)
        if name in state.topics or name in state.pending_deletions:
            raise KafkaError(f"topic '{name}' already exists", code=ErrorCode.TOPIC_ALREADY_EXISTS)
        other = colliding_name(name, state.topics)
        if other is not None:
            raise KafkaError(
                f"topic '{name}' collides with existing topic '{other}': metrics cannot tell '.' from '_'",
                code=ErrorCode.INVALID_TOPIC_EXCEPTION,
            )

    def _assignment(self, new: NewTopic) -> dict[int, list[int]]:
        racks = self._controller.state.racks
        if new.assignment:
            if new.partitions != -1 or new.replication_factor != -1:
                raise KafkaError(
                    "give either a replica assignment or the numbers of partitions and replicas, not both",
                    code=ErrorCode.INVALID_REQUEST,
                )
            check_assignment(new.assignment, first_partition=0, live=racks)
            return new.assignment
        self._check_count(new.partitions)
        return place_replicas(
            racks,
            partitions=new.partitions,
            replication_factor=new.replication_factor,
            start=self._random.randrange(len(racks)),
            shift=self._random.randrange(len(racks)),
        )

    @staticmethod
    def _check_count(partitions: int) -> None:
        if partitions < 1:
            raise KafkaError(
                f"the number of partitions must be at least 1, not {partitions}", code=ErrorCode.INVALID_PARTITIONS
            )
        if partitions > MAX_PARTITIONS_PER_REQUEST:
            raise KafkaError(
                f"{partitions} partitions are more than one request may create ({MAX_PARTITIONS_PER_REQUEST})",
                code=ErrorCode.INVALID_PARTITIONS,
            )

    async def _write_new_topic(self, new: NewTopic, topic_id: Uuid, assignment: dict[int, list[int]]) -> None:
        controller = self._controller
        partitions = {index: PartitionState(replicas) for index, replicas in sorted(assignment.items())}
        operations: list[Operation] = [
            Create(paths.topic(new.name), paths.TopicNode(topic_id, assignment, {}, {}).encode()),
            Create(f"{paths.topic(new.name)}/partitions"),
            Create(paths.topic_config(new.name), paths.encode_config(new.configs)),
        ]
        operations += self._first_states(new.name, partitions)
        await controller.commit(operations)
        controller.state.topics[new.name] = TopicState(topic_id, partitions)
        await self._announce_new(new.name, partitions)

    def _first_states(self, name: str, partitions: dict[int, PartitionState]) -> list[Operation]:
        controller = self._controller
        operations: list[Operation] = []
        for index, partition in partitions.items():
            elected = first_leader(partition.replicas, controller.state.brokers)
            partition.leader, partition.isr, partition.leader_epoch = elected.leader, elected.isr, 0
            operations.append(Create(f"{paths.topic(name)}/partitions/{index}"))
            operations.append(controller.state_operation(TopicPartition(name, index), partition))
        return operations

    async def _announce_new(self, name: str, partitions: dict[int, PartitionState]) -> None:
        for partition in partitions.values():
            partition.partition_epoch = 0
        await self._controller.announce([TopicPartition(name, index) for index in partitions], are_new=True)

    async def add_partitions(
        self, name: str, count: int, assignment: list[list[int]] | None, *, validate_only: bool = False
    ) -> None:
        """Grows the topic to `count` partitions; `assignment` holds the new ones' replicas if the caller chose them."""
        controller = self._controller
        controller.require_active()
        async with controller.mutation:
            topic = self._existing(name)
            added = self._added_partitions(topic, name, count, assignment)
            if validate_only:
                return
            partitions = {index: PartitionState(replicas) for index, replicas in added.items()}
            everything = {index: partition.replicas for index, partition in topic.partitions.items()} | added
            operations: list[Operation] = [
                Set(paths.topic(name), paths.TopicNode(topic.topic_id, everything, {}, {}).encode(), topic.node_version)
            ]
            operations += self._first_states(name, partitions)
            await controller.commit(operations)
            topic.node_version += 1
            topic.partitions |= partitions
            await self._announce_new(name, partitions)

    def _added_partitions(
        self, topic: TopicState, name: str, count: int, assignment: list[list[int]] | None
    ) -> dict[int, list[int]]:
        current = len(topic.partitions)
        if count <= current:
            # Kafka's words, which operators and their scripts know.
            reason = (
                f"Topic already has {current} partitions."
                if count == current
                else f"The topic {name} currently has {current} partition(s); {count} would not be an increase."
            )
            raise KafkaError(reason, code=ErrorCode.INVALID_PARTITIONS)
        added = count - current
        self._check_count(added)
        racks = self._controller.state.racks
        factor = len(topic.partitions[0].replicas)
        if assignment is not None:
            if len(assignment) != added:
                raise KafkaError(
                    f"{added} partitions are to be added, but replicas are given for {len(assignment)}",
                    code=ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                )
            chosen = dict(enumerate(assignment, current))
            check_assignment(chosen, first_partition=current, live=racks)
            if len(assignment[0]) != factor:
                raise KafkaError(
                    f"new partitions need {factor} replicas, as the existing ones have",
                    code=ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                )
            return chosen
        # The pattern goes on where it stopped, so that the new leaders land on the brokers that follow.
        brokers = sorted(racks)
        first = topic.partitions[0].replicas[0]
        start = brokers.index(first) if first in brokers else 0
        return place_replicas(
            racks, partitions=added, replication_factor=factor, start=start, shift=start, first_partition=current
        )

    async def delete(self, name: str) -> None:
        controller = self._controller
        controller.require_active()
        async with controller.mutation:
            topic = self._existing(name)
            # Marked first: a controller that takes over in between finds the mark and finishes the work.
            await controller.commit([Create(f"{paths.DELETE_TOPICS}/{name}")])
            controller.state.pending_deletions.add(name)
            await self._finish_deletion(name, topic)

    async def resume_deletions(self) -> None:
        """Finishes what a controller before this one had marked."""
        controller = self._controller
        async with controller.mutation:
            for name in sorted(controller.state.pending_deletions):
                topic = controller.state.topics.get(name)
                if topic is not None:
                    await self._finish_deletion(name, topic)
                else:
                    await controller.commit([Delete(f"{paths.DELETE_TOPICS}/{name}")])
                    controller.state.pending_deletions.discard(name)

    async def _finish_deletion(self, name: str, topic: TopicState) -> None:
        controller = self._controller
        await controller.announce_deletion(name)
        operations: list[Operation] = []
        for index in topic.partitions:
            operations.append(Delete(paths.partition_state(name, index)))
            operations.append(Delete(f"{paths.topic(name)}/partitions/{index}"))
        operations.append(Delete(f"{paths.topic(name)}/partitions"))
        operations.append(Delete(paths.topic(name)))
        if await controller.store.get(paths.topic_config(name)) is not None:
            operations.append(Delete(paths.topic_config(name)))
        operations.append(Delete(f"{paths.DELETE_TOPICS}/{name}"))
        await controller.commit(operations)
        del controller.state.topics[name]
        controller.state.pending_deletions.discard(name)

    def _existing(self, name: str) -> TopicState:
        topic = self._controller.state.topics.get(name)
        if topic is None or name in self._controller.state.pending_deletions:
            raise KafkaError(f"topic '{name}' does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic
