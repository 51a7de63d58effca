"""Who may do what. Every handler names the operation and the resource it needs; an Authorizer decides."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from ottla.base.acls import AclOperation, AclResourceType
from ottla.base.errors import ErrorCode, KafkaError

CLUSTER_NAME = "kafka-cluster"
NOT_REQUESTED = -(2**31)
"""What a reply says of authorised operations nobody asked for."""


Operation: TypeAlias = AclOperation
ResourceType: TypeAlias = AclResourceType

OPERATIONS_OF: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}

REFUSAL_OF: dict[ResourceType, ErrorCode] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Authorizer(Protocol):
    @property
    def generation(self) -> int:
        """Another number than before as soon as any decision may be another one: what was remembered is void then."""

    def allows(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool: ...

    def allows_any(self, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether there is any resource of the type, existing or not, on which the operation is allowed."""


class AllowAll:
    """What a broker without `authorizer.class.name` does."""

    generation = 0

    def allows(self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return True

    def allows_any(self, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        return True


def refusal(resource_type: ResourceType) -> KafkaError:
    return KafkaError(code=REFUSAL_OF[resource_type])
