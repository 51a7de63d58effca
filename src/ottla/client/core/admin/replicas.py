"""Where replicas are and which of them leads: what is asked of the controller, what its answers say. Sends nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.core.admin.arguments import as_list
from ottla.client.core.admin.outcomes import Call, admin_error, outcome
from ottla.client.core.admin.types import ElectionType, PartitionReassignment
from ottla.client.core.consumer.offset_requests import by_topic
from ottla.client.errors import ClientError
from ottla.wire.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.apis.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from ottla.wire.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)

REASSIGNMENTS = "partition reassignments"
ALL_PARTITIONS = "all partitions"

_FIRST_ELECTION_TYPES = 1

# Reassignments


def reassignments_to_make(
    given: Mapping[TopicPartition, Iterable[int] | None],
) -> dict[TopicPartition, list[int] | None]:
    if not isinstance(given, Mapping):
        raise ValueError(f"replicas are given by partition, such as {{('orders', 0): [1, 2]}}, but were {given!r}")
    wanted: dict[TopicPartition, list[int] | None] = {}
    for key, brokers in given.items():
        partition = TopicPartition(*key)
        replicas = None if brokers is None else as_list(brokers, f"the replicas of {partition}")
        if replicas == []:
            raise ValueError(f"{partition} needs a replica; None cancels a reassignment")
        wanted[partition] = replicas
    return wanted


def alter_partition_reassignments_call(
    replicas: Mapping[TopicPartition, list[int] | None], *, timeout_ms: int
) -> Call[TopicPartition, None]:
    def build(partitions: Sequence[TopicPartition], version: int) -> AlterPartitionReassignmentsRequest:
        return AlterPartitionReassignmentsRequest(
            timeout_ms=timeout_ms,
            topics=[
                ReassignableTopic(
                    name=topic,
                    partitions=[
                        ReassignablePartition(partition_index=index, replicas=replicas[TopicPartition(topic, index)])
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(partitions).items()
            ],
        )

    def read(response: AlterPartitionReassignmentsResponse) -> dict[TopicPartition, ClientError | None] | ClientError:
        if response.error_code:
            return admin_error(response.error_code, response.error_message)
        return {
            (key := TopicPartition(topic.name, answer.partition_index)): outcome(
                answer.error_code, None, answer.error_message, where=key
            )
            for topic in response.responses
            for answer in topic.partitions
        }

    return Call(
        "alter_partition_reassignments",
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
        build,
        read,
    )


def list_partition_reassignments_call(
    partitions: Iterable[TopicPartition] | None, *, timeout_ms: int
) -> Call[str, dict[TopicPartition, PartitionReassignment]]:
    chosen = None if partitions is None else by_topic(partitions)

    def build(_: Sequence[str], version: int) -> ListPartitionReassignmentsRequest:
        return ListPartitionReassignmentsRequest(
            timeout_ms=timeout_ms,
            topics=None
            if chosen is None
            else [
                ListPartitionReassignmentsTopics(name=topic, partition_indexes=indexes)
                for topic, indexes in chosen.items()
            ],
        )

    def read(
        response: ListPartitionReassignmentsResponse,
    ) -> dict[str, dict[TopicPartition, PartitionReassignment] | ClientError]:
        found = {
            TopicPartition(topic.name, entry.partition_index): PartitionReassignment(
                tuple(entry.replicas), tuple(entry.adding_replicas), tuple(entry.removing_replicas)
            )
            for topic in response.topics
            for entry in topic.partitions
        }
        return {REASSIGNMENTS: outcome(response.error_code, dict(sorted(found.items())), response.error_message)}

    return Call(
        "list_partition_reassignments",
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
        build,
        read,
    )


# Elections


def elect_leaders_call(kind: ElectionType, *, timeout_ms: int) -> Call[TopicPartition, None]:
    def build(partitions: Sequence[TopicPartition], version: int) -> ElectLeadersRequest:
        return _election(partitions, kind, timeout_ms, version)

    return Call("elect_leaders", ElectLeadersRequest, ElectLeadersResponse, build, _read_elections)


def elect_all_leaders_call(
    kind: ElectionType, *, timeout_ms: int
) -> Call[str, dict[TopicPartition, ClientError | None]]:
    def build(_: Sequence[str], version: int) -> ElectLeadersRequest:
        return _election(None, kind, timeout_ms, version)

    def read(response: ElectLeadersResponse) -> dict[str, dict[TopicPartition, ClientError | None]] | ClientError:
        elections = _read_elections(response)
        return elections if isinstance(elections, ClientError) else {ALL_PARTITIONS: elections}

    return Call("elect_leaders", ElectLeadersRequest, ElectLeadersResponse, build, read)


def _election(
    partitions: Sequence[TopicPartition] | None, kind: ElectionType, timeout_ms: int, version: int
) -> ElectLeadersRequest:
    if version < _FIRST_ELECTION_TYPES and kind != ElectionType.PREFERRED:
        raise admin_error(ErrorCode.UNSUPPORTED_VERSION, "the broker is too old for elections that are not preferred")
    return ElectLeadersRequest(
        election_type=kind,
        topic_partitions=None
        if partitions is None
        else [TopicPartitions(topic=topic, partitions=indexes) for topic, indexes in by_topic(partitions).items()],
        timeout_ms=timeout_ms,
    )


def _read_elections(response: ElectLeadersResponse) -> dict[TopicPartition, ClientError | None] | ClientError:
    if response.error_code:
        return admin_error(response.error_code)
    return {
        (key := TopicPartition(topic.topic, answer.partition_id)): outcome(
            answer.error_code, None, answer.error_message, where=key
        )
        for topic in response.replica_election_results
        for answer in topic.partition_result
    }
