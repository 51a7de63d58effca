"""What `ottla acls` needs to be told, and how it shows rules. Nobody is connected to."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Any

import pytest

from ottla.base.acls import AclOperation, AclPattern, AclPermission, AclResourceType
from ottla.cli.access import acls
from ottla.cli.access.acls import _show, main
from ottla.client.core.admin.access_types import AclBinding

SERVER = ["--bootstrap-server", "h:1"]


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The options that brokers would have been asked with."""
    seen: list[Any] = []

    async def run(options: Namespace) -> None:
        seen.append(options)

    monkeypatch.setattr(acls, "_run", run)
    return seen


@pytest.mark.parametrize(
    ("words", "operations"),
    [
        ([], []),
        (["read"], [AclOperation.READ]),
        (["READ", "Write"], [AclOperation.READ, AclOperation.WRITE]),
        (["DescribeConfigs"], [AclOperation.DESCRIBE_CONFIGS]),
        (["describe-configs"], [AclOperation.DESCRIBE_CONFIGS]),
        (["DESCRIBE_CONFIGS"], [AclOperation.DESCRIBE_CONFIGS]),
        (["IdempotentWrite", "all"], [AclOperation.IDEMPOTENT_WRITE, AclOperation.ALL]),
    ],
)
def test_operations_are_named_in_any_way(passed: list[Any], words: list[str], operations: list[AclOperation]) -> None:
    given = [text for word in words for text in ("--operation", word)]
    assert main(["list", *given, *SERVER]) == 0
    assert passed[0].operations == operations


@pytest.mark.parametrize(
    ("word", "pattern"),
    [(None, "LITERAL"), ("literal", "LITERAL"), ("Prefixed", "PREFIXED"), ("any", "ANY"), ("MATCH", "MATCH")],
)
def test_patterns(passed: list[Any], word: str | None, pattern: str) -> None:
    given = [] if word is None else ["--resource-pattern-type", word]
    main(["list", *given, *SERVER])
    assert passed[0].pattern is AclPattern[pattern]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["list", "--operation", "fly"], "ResourceType and operation: 'fly' is no operation"),
        (["list", "--resource-pattern-type", "unknown"], "is not literal, prefixed, any or match"),
        (["add", "--topic", "t"], "One of --allow-principal or --deny-principal must be given with --add"),
        (["add", "--allow-principal", "User:a"], "You must specify at least one resource"),
        (["remove"], "You must specify at least one resource"),
        (["list", "--add"], "name exactly one of list, add, remove"),
    ],
)
def test_what_is_missing_is_told(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*arguments, *SERVER])
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["list"],
        ["remove", "--topic", "t"],
        ["remove", "--producer"],
        ["remove", "--consumer"],
        ["add", "--topic", "t", "--allow-principal", "User:a"],
        ["add", "--cluster", "--deny-principal", "User:a"],
    ],
)
def test_what_is_enough(passed: list[Any], arguments: list[str]) -> None:
    assert main([*arguments, *SERVER]) == 0
    assert (passed[0].verb, passed[0].yes) == (arguments[0], False)


def test_rules_are_removed_without_asking_if_that_is_said(passed: list[Any]) -> None:
    for word in ("--yes", "--force"):
        main(["remove", "--topic", "t", word, *SERVER])
        assert passed.pop().yes is True


READ = AclBinding(
    AclResourceType.TOPIC, "t", "User:a", AclOperation.READ, AclPermission.ALLOW, "*", AclPattern.PREFIXED
)
DENIED = READ._replace(operation=AclOperation.WRITE, permission=AclPermission.DENY, host="h")
OTHER = READ._replace(name="u", pattern=AclPattern.LITERAL)


def test_rules_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    _show([READ, DENIED], Namespace(kafka=False, output="json"))
    assert json.loads(capsys.readouterr().out) == [
        {
            "resource": "TOPIC",
            "name": "t",
            "pattern": "PREFIXED",
            "principal": "User:a",
            "host": host,
            "operation": operation,
            "permission": permission,
        }
        for host, operation, permission in (("*", "READ", "ALLOW"), ("h", "WRITE", "DENY"))
    ]


def test_rules_are_shown_by_resource_under_kafkas_name(capsys: pytest.CaptureFixture[str]) -> None:
    _show([READ, OTHER, DENIED], Namespace(kafka=True))
    assert capsys.readouterr().out == (
        "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=t, patternType=PREFIXED)`: \n"
        " \t(principal=User:a, host=*, operation=READ, permissionType=ALLOW)\n"
        "\t(principal=User:a, host=h, operation=WRITE, permissionType=DENY) \n\n"
        "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=u, patternType=LITERAL)`: \n"
        " \t(principal=User:a, host=*, operation=READ, permissionType=ALLOW) \n\n"
    )
