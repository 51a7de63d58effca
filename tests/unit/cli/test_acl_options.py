"""Which rules the options of `ottla acls` stand for."""

from __future__ import annotations

from argparse import Namespace

import pytest

from ottla.base.acls import AclOperation as Op
from ottla.base.acls import AclPattern, AclPermission
from ottla.base.acls import AclResourceType as Type
from ottla.cli.access.acls import bindings, filters, operations_for, parser, resources
from ottla.client.core.admin.access_types import EVERY_ACL, AclBinding, AclFilter


def options(*arguments: str, operations: tuple[Op, ...] = ()) -> Namespace:
    read = parser().read([*arguments])
    read.pattern, read.operations = AclPattern.LITERAL, list(operations)
    read.resources = resources(read)
    return read


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), {kind: [Op.ALL] for kind in (Type.TOPIC, Type.GROUP, Type.CLUSTER, Type.TRANSACTIONAL_ID)}),
        (
            ("--producer",),
            {
                Type.TOPIC: [Op.WRITE, Op.DESCRIBE, Op.CREATE],
                Type.TRANSACTIONAL_ID: [Op.WRITE, Op.DESCRIBE],
                Type.CLUSTER: [],
                Type.GROUP: [],
            },
        ),
        (("--producer", "--idempotent"), {Type.CLUSTER: [Op.IDEMPOTENT_WRITE]}),
        (
            ("--consumer",),
            {Type.TOPIC: [Op.READ, Op.DESCRIBE], Type.GROUP: [Op.READ], Type.CLUSTER: [], Type.TRANSACTIONAL_ID: []},
        ),
        (
            ("--producer", "--consumer"),
            {Type.TOPIC: [Op.WRITE, Op.DESCRIBE, Op.CREATE, Op.READ], Type.GROUP: [Op.READ]},
        ),
    ],
)
def test_what_producers_and_consumers_need(arguments: tuple[str, ...], expected: dict[Type, list[Op]]) -> None:
    read = options("add", *arguments)
    assert {kind: operations_for(kind, read) for kind in expected} == expected


def test_operations_that_are_named_are_all() -> None:
    assert operations_for(Type.TOPIC, options("add", operations=(Op.ALTER, Op.READ))) == [Op.ALTER, Op.READ]


def test_resources() -> None:
    named = ("--topic", "t", "--topic", "u", "--group", "g", "--transactional-id", "x", "--cluster")
    others = ("--delegation-token", "d", "--user-principal", "User:p")
    assert options("add", *named, *others).resources == [
        (Type.TOPIC, "t"),
        (Type.TOPIC, "u"),
        (Type.CLUSTER, "kafka-cluster"),
        (Type.GROUP, "g"),
        (Type.TRANSACTIONAL_ID, "x"),
        (Type.DELEGATION_TOKEN, "d"),
        (Type.USER, "User:p"),
    ]
    assert options("add", "--producer", "--idempotent", "--topic", "t").resources == [
        (Type.TOPIC, "t"),
        (Type.CLUSTER, "kafka-cluster"),
    ]
    assert options("list").resources == []


def test_every_resource_meets_every_principal_host_and_operation() -> None:
    sides = ("--allow-principal", "User:a", "--allow-host", "h", "--allow-host", "i", "--deny-principal", "User:d")
    read = options("add", "--topic", "t", *sides, operations=(Op.READ, Op.WRITE))
    assert bindings(read) == [
        AclBinding(Type.TOPIC, "t", principal, operation, permission, host, AclPattern.LITERAL)
        for permission, principal, hosts in (
            (AclPermission.ALLOW, "User:a", ("h", "i")),
            (AclPermission.DENY, "User:d", ("*",)),
        )
        for host in hosts
        for operation in (Op.READ, Op.WRITE)
    ]


def test_what_is_listed_and_removed() -> None:
    assert filters(options("list")) == [EVERY_ACL]
    assert filters(options("remove", "--group", "g")) == [AclFilter(Type.GROUP, "g", pattern=AclPattern.LITERAL)]
    exact = options("remove", "--group", "g", "--deny-principal", "User:d")
    assert filters(exact) == [AclFilter.exactly(binding) for binding in bindings(exact)]
    whose = options("list", "--group", "g", "--allow-principal", "User:d")
    assert filters(whose) == [AclFilter(Type.GROUP, "g", pattern=AclPattern.LITERAL)]
