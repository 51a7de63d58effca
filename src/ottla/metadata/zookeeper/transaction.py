"""Commits as ZooKeeper's transactions: what they are made of, and what their answers mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kazoo import exceptions
from kazoo.client import KazooClient, TransactionRequest
from kazoo.protocol import serialization

from ottla.metadata.store import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Committed,
    Create,
    CreateSequential,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Set,
    StoreError,
    StoreFailedError,
)
from ottla.metadata.zookeeper.requests import describe

_EPHEMERAL, _SEQUENTIAL = 1, 2


def transaction(
    client: KazooClient, operations: Sequence[Operation], full: Callable[[str], str], acl: Callable[[str], list[Any]]
) -> TransactionRequest:
    request = client.transaction()
    request.operations += [_translate(operation, full, acl) for operation in operations]
    return request


def _translate(operation: Operation, full: Callable[[str], str], acl: Callable[[str], list[Any]]) -> Any:
    # Not by the request's own methods: they know no node without data, as Kafka's containers are.
    match operation:
        case Create(path, data, ephemeral):
            return serialization.Create(full(path), data or None, acl(path), _EPHEMERAL if ephemeral else 0)
        case CreateSequential(prefix, data):
            return serialization.Create(full(prefix), data or None, acl(prefix), _SEQUENTIAL)
        case Set(path, data, version):
            return serialization.SetData(full(path), data, version)
        case Delete(path, version):
            return serialization.Delete(full(path), version)
        case Check(path, version):
            return serialization.CheckVersion(full(path), version)


def read_results(operations: Sequence[Operation], results: Sequence[Any], chroot_length: int) -> list[Committed]:
    """Raises the StoreError of the operation that stood in the way of the others."""
    for operation, result in zip(operations, results, strict=True):
        if isinstance(result, Exception) and not isinstance(
            result, exceptions.RolledBackError | exceptions.RuntimeInconsistency
        ):
            raise _refusal(operation, result)
    if any(isinstance(result, Exception) for result in results):
        raise StoreFailedError("ZooKeeper refused a transaction and did not say why")
    return [_committed(operation, result, chroot_length) for operation, result in zip(operations, results, strict=True)]


def _committed(operation: Operation, result: Any, chroot_length: int) -> Committed:
    match operation:
        case Create(path):
            return Committed(path, 0)
        case CreateSequential():
            return Committed(result[chroot_length:], 0)
        case Set(path):
            return Committed(path, result.version)
        case Delete(path):
            return Committed(path, ANY_VERSION)
        case Check(path, version):
            return Committed(path, version)


def _refusal(operation: Operation, problem: Exception) -> StoreError:
    path = operation.prefix if isinstance(operation, CreateSequential) else operation.path
    match problem:
        case exceptions.NodeExistsError():
            return NodeExistsError(path)
        case exceptions.NoNodeError() if isinstance(operation, Create | CreateSequential):
            return NoNodeError(path.rsplit("/", 1)[0])
        case exceptions.NoNodeError():
            return NoNodeError(path)
        case exceptions.NotEmptyError():
            return NotEmptyError(path)
        case exceptions.BadVersionError():
            return BadVersionError(path)
        case exceptions.NoAuthError():
            return StoreError(path, "ZooKeeper's access list does not let this broker change the node")
        case _:
            return StoreError(path, f"ZooKeeper refused: {describe(problem)}")
