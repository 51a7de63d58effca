"""`ottla acls`: who may do what with which resources; Kafka's kafka-acls."""

from __future__ import annotations

from argparse import SUPPRESS, Namespace
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.cli.failures import run_client
from ottla.cli.parsing import CommandParser

if TYPE_CHECKING:
    from ottla.base.acls import AclOperation, AclPattern, AclResourceType
    from ottla.client.core.admin.access_types import AclBinding, AclFilter

_CLUSTER = "kafka-cluster"
_EXAMPLES = (
    "ottla acls list --topic orders",
    "ottla acls add --allow-principal User:ann --operation read --topic orders",
    "ottla acls add --allow-principal User:app --producer --topic orders",
    "ottla acls remove --topic orders --yes",
)
Resource = tuple["AclResourceType", str]


def parser(kafka: str = "") -> CommandParser:
    summary = "List, add and remove access rules: who may do, or may not do, what with which resources."
    made = CommandParser(
        "acls",
        summary,
        words="[VERB]",
        verbs=("list", "add", "remove"),
        examples=_EXAMPLES,
        kafka=kafka,
        prints_rows=True,
    )
    made.add_verb_flags({"list": "show rules", "add": "add rules", "remove": "remove rules"})
    for kind, text in (
        ("topic", "a topic; repeatable"),
        ("group", "a group; repeatable"),
        ("transactional-id", "a transactional id; repeatable"),
        ("delegation-token", "a delegation token; repeatable"),
        ("user-principal", "a user; repeatable"),
    ):
        made.add_argument(f"--{kind}", action="append", default=[], metavar="NAME", help=text)
    made.add_flag("--cluster", "the cluster itself")
    made.add_argument(
        "--resource-pattern-type", default="literal", metavar="KIND", help="literal, prefixed, any, match"
    )
    made.add_argument("--operation", action="append", default=[], metavar="NAME", help="read, write, …; all without")
    for kind in ("allow", "deny"):
        made.add_argument(
            f"--{kind}-principal", action="append", default=[], metavar="User:NAME", help=f"whom to {kind}; repeatable"
        )
        made.add_argument(f"--{kind}-host", action="append", default=[], metavar="HOST", help="from where; anywhere")
    made.add_argument("--principal", action="append", default=[], metavar="User:NAME", help="list only this user's")
    made.add_flag("--producer", "what a producer needs of --topic")
    made.add_flag("--consumer", "what a consumer needs of --topic and --group")
    made.add_flag("--idempotent", "with --producer, on brokers before 2.8")
    made.add_flag("--yes", "remove without asking")
    made.add_argument("--force", dest="yes", action="store_true", default=SUPPRESS, help=SUPPRESS)
    for old in ("--authorizer", "--authorizer-properties", "--bootstrap-controller"):
        made.add_argument(old, help=SUPPRESS)
    return made


def main(arguments: list[str], kafka: str = "") -> int:
    made = parser(kafka)
    options = made.read(arguments)
    from ottla.base.acls import AclOperation, AclPattern

    if options.resource_pattern_type.upper() not in ("LITERAL", "PREFIXED", "ANY", "MATCH"):
        made.error(f"--resource-pattern-type {options.resource_pattern_type!r} is not literal, prefixed, any or match")
    options.pattern = AclPattern[options.resource_pattern_type.upper()]
    operations = []
    for text in options.operation:
        name = "".join(f"_{sign}" if sign.isupper() and at else sign for at, sign in enumerate(text))
        name = name.replace("-", "_").upper() if not text.isupper() else text
        if name not in AclOperation.__members__:
            made.error(f"ResourceType and operation: {text!r} is no operation")
        operations.append(AclOperation[name])
    options.operations = operations
    options.resources = resources(options)
    if options.verb == "add" and not (options.allow_principal or options.deny_principal):
        made.error("One of --allow-principal or --deny-principal must be given with --add")
    if options.verb != "list" and not options.resources and not (options.producer or options.consumer):
        made.error(
            "You must specify at least one resource: --topic <topic> or --cluster or --group <group> or "
            "--delegation-token <Delegation Token ID>"
        )
    run_client(_run(options))
    return 0


def resources(options: Namespace) -> list[Resource]:
    from ottla.base.acls import AclResourceType as Type

    found: list[Resource] = [(Type.TOPIC, name) for name in options.topic]
    if options.cluster or options.idempotent:
        found.append((Type.CLUSTER, _CLUSTER))
    found += [(Type.GROUP, name) for name in options.group]
    found += [(Type.TRANSACTIONAL_ID, name) for name in options.transactional_id]
    found += [(Type.DELEGATION_TOKEN, name) for name in options.delegation_token]
    return found + [(Type.USER, name) for name in options.user_principal]


def operations_for(kind: AclResourceType, options: Namespace) -> list[AclOperation]:
    """What is named, or what producers and consumers need."""
    from ottla.base.acls import AclOperation as Op
    from ottla.base.acls import AclResourceType as Type

    if not options.producer and not options.consumer:
        return options.operations or [Op.ALL]
    wanted: list[AclOperation] = []
    if options.producer:
        needs = {Type.TOPIC: [Op.WRITE, Op.DESCRIBE, Op.CREATE], Type.TRANSACTIONAL_ID: [Op.WRITE, Op.DESCRIBE]}
        needs[Type.CLUSTER] = [Op.IDEMPOTENT_WRITE] if options.idempotent else []
        wanted += needs.get(kind, [])
    if options.consumer:
        wanted += {Type.TOPIC: [Op.READ, Op.DESCRIBE], Type.GROUP: [Op.READ]}.get(kind, [])
    return list(dict.fromkeys(wanted))


def bindings(options: Namespace) -> list[AclBinding]:
    from ottla.base.acls import AclPermission
    from ottla.client.core.admin.access_types import AclBinding

    sides = (
        (AclPermission.ALLOW, options.allow_principal, options.allow_host),
        (AclPermission.DENY, options.deny_principal, options.deny_host),
    )
    return [
        AclBinding(kind, name, principal, operation, permission, host, options.pattern)
        for kind, name in options.resources
        for permission, principals, hosts in sides
        for principal in principals
        for host in hosts or ["*"]
        for operation in operations_for(kind, options)
    ]


def filters(options: Namespace) -> list[AclFilter]:
    from ottla.client.core.admin.access_types import EVERY_ACL, AclFilter

    if options.verb == "remove" and (options.allow_principal or options.deny_principal):
        return [AclFilter.exactly(binding) for binding in bindings(options)]
    if not options.resources:
        return [EVERY_ACL]
    return [AclFilter(kind, name, pattern=options.pattern) for kind, name in options.resources]


async def _run(options: Namespace) -> None:
    from ottla.cli.confirming import confirm
    from ottla.cli.session import open_admin

    async with open_admin(options, "ottla-acls") as admin:
        if options.verb == "add":
            new = bindings(options)
            if options.kafka or options.output == "table":
                _print_blocks("Adding ACLs", new)
            (await admin.create_acls(new)).check()
            if options.output in ("json", "tsv"):
                _show(new, options)
            return
        found: list[AclBinding] = []
        if options.verb == "remove":
            for one in filters(options):
                if not options.yes:
                    confirm(f"Remove {one}?", yes=False)
                found += (await admin.delete_acls([one])).check()[one]
            if not options.kafka:
                _show(found, options)
            return
        for one in filters(options):
            found += await admin.describe_acls(one)
        principals = set(options.principal)
        _show([acl for acl in found if not principals or acl.principal in principals], options)


def _show(found: Iterable[AclBinding], options: Namespace) -> None:
    if options.kafka:
        _print_blocks("Current ACLs", found)
        return
    from ottla.cli.rows import show_rows

    rows = [
        (
            *(acl.resource_type.name, acl.name, acl.pattern.name, acl.principal, acl.host),
            *(acl.operation.name, acl.permission.name),
        )
        for acl in found
    ]
    names = ["resource", "name", "pattern", "principal", "host", "operation", "permission"]
    show_rows(options.output, names, rows)


def _print_blocks(title: str, found: Iterable[AclBinding]) -> None:
    by_resource: dict[tuple[AclResourceType, str, AclPattern], list[AclBinding]] = {}
    for acl in found:
        by_resource.setdefault((acl.resource_type, acl.name, acl.pattern), []).append(acl)
    for (kind, name, pattern), entries in by_resource.items():
        place = f"ResourcePattern(resourceType={kind.name}, name={name}, patternType={pattern.name})"
        lines = "\n\t".join(
            f"(principal={acl.principal}, host={acl.host}, operation={acl.operation.name}, "
            f"permissionType={acl.permission.name})"
            for acl in entries
        )
        print(f"{title} for resource `{place}`: \n \t{lines} \n")
