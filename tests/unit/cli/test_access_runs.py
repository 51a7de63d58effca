"""What `ottla acls`, `users` and `quotas` ask of brokers, and what they print of the answers, which are scripted."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.base.acls import AclOperation, AclPattern, AclPermission, AclResourceType
from ottla.base.errors import ErrorCode
from ottla.client.core.admin.access_types import (
    EVERY_ACL,
    QUOTA_DEFAULT,
    AclBinding,
    AclFilter,
    QuotaEntity,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
)
from ottla.client.core.admin.outcomes import Outcomes
from ottla.client.errors import ClientError
from tests.unit.cli.scripted import Answering

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
REFUSED = ClientError("not allowed", code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def rule(topic: str, user: str) -> AclBinding:
    return AclBinding(AclResourceType.TOPIC, topic, f"User:{user}", AclOperation.READ, AclPermission.ALLOW, "*")


class Brokers:
    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.refuses = False

    def _answer(self, answer: dict[Any, Any]) -> Any:
        return Outcomes(dict.fromkeys(answer, REFUSED) if self.refuses else answer)

    async def create_acls(self, new: list[AclBinding]) -> Any:
        self.asked.append(new)
        return self._answer(dict.fromkeys(new))

    async def delete_acls(self, filters: list[AclFilter]) -> Any:
        self.asked.append(filters)
        return self._answer({filters[0]: [rule(filters[0].name or "", "a"), rule(filters[0].name or "", "b")]})

    async def describe_acls(self, one: AclFilter) -> Any:
        self.asked.append(one)
        return [rule(one.name or "x", "a"), rule(one.name or "x", "b")]

    async def describe_user_scram_credentials(self, users: list[str] | None) -> Any:
        self.asked.append(users)
        return self._answer({"b": {SHA_512: 8192, SHA_256: 4096}, "a": {SHA_512: 5000}})

    async def alter_user_scram_credentials(self, changes: list[Any]) -> Any:
        self.asked.append(changes)
        return self._answer(dict.fromkeys(change.user for change in changes))

    async def describe_client_quotas(self, **whose: Any) -> Any:
        self.asked.append(whose)
        return {QuotaEntity(user="b"): {"y": 2.0, "x": 1.5}, QuotaEntity(user="a", client_id=QUOTA_DEFAULT): {"z": 3.0}}

    async def alter_client_quotas(self, changes: dict[QuotaEntity, dict[str, float | None]]) -> Any:
        self.asked.append(changes)
        return self._answer(dict.fromkeys(changes))


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


# Rules

RULE = {
    "resource": "TOPIC",
    "name": "t",
    "pattern": "LITERAL",
    "principal": "User:a",
    "host": "*",
    "operation": "READ",
    "permission": "ALLOW",
}
ADD = ("add", "--topic", "t", "--allow-principal", "User:a", "--operation", "read")


def test_rules_are_added(brokers: Brokers, answering: Answering) -> None:
    run = answering(brokers)
    code, shown, error = run("acls", *ADD)
    assert (code, error) == (0, "")
    assert shown.splitlines() == [
        "Adding ACLs for resource `ResourcePattern(resourceType=TOPIC, name=t, patternType=LITERAL)`: ",
        " \t(principal=User:a, host=*, operation=READ, permissionType=ALLOW) ",
        "",
    ]
    assert run("kafka-acls.sh", "--add", *ADD[1:])[:2] == (0, shown)
    code, shown, _ = run("acls", *ADD, "-o", "json")
    assert (code, json.loads(shown)) == (0, [RULE])
    assert run("acls", *ADD, "-o", "tsv")[1].splitlines()[1:] == ["\t".join(RULE.values())]
    assert brokers.asked == [[rule("t", "a")]] * 4
    brokers.refuses = True
    code, _, error = run("acls", *ADD)
    assert (code, error) == (1, "not allowed\n")


def test_rules_are_removed_if_that_is_meant(brokers: Brokers, answering: Answering) -> None:
    run = answering(brokers)
    code, shown, error = run("acls", "remove", "--topic", "t", "--topic", "u")
    assert (code, shown) == (2, "") and error.startswith("Remove rules with ") and brokers.asked == []
    code, shown, _ = run("acls", "remove", "--topic", "t", "--topic", "u", "--yes", "-o", "json")
    pattern = AclPattern.LITERAL
    assert brokers.asked == [[AclFilter(AclResourceType.TOPIC, name, pattern=pattern)] for name in ("t", "u")]
    assert [(row["name"], row["principal"]) for row in json.loads(shown)] == [
        (name, f"User:{user}") for name in "tu" for user in "ab"
    ]
    assert run("kafka-acls.sh", "--remove", "--topic", "t", "--force") == (0, "", "")
    brokers.refuses = True
    assert run("acls", "remove", "--topic", "t", "--yes") == (1, "", "not allowed\n")


def test_rules_are_listed_and_narrowed_to_users(brokers: Brokers, answering: Answering) -> None:
    run = answering(brokers)
    assert len(json.loads(run("acls", "list", "-o", "json")[1])) == 2
    code, shown, _ = run("acls", "list", "--topic", "t", "--principal", "User:a", "-o", "json")
    assert (code, json.loads(shown)) == (0, [RULE])
    assert brokers.asked == [EVERY_ACL, AclFilter(AclResourceType.TOPIC, "t", pattern=AclPattern.LITERAL)]
    code, shown, _ = run("kafka-acls.sh", "--list", "--topic", "t", "--group", "g")
    assert code == 0 and shown.count("Current ACLs for resource") == 2 and shown.count("principal=User:b") == 2


# Users


def test_users_are_listed_with_their_passwords(brokers: Brokers, answering: Answering) -> None:
    run = answering(brokers)
    assert run("users", "list", "-o", "tsv")[1].splitlines() == [
        "user\tmechanism\titerations",
        "a\tSCRAM-SHA-512\t5000",
        "b\tSCRAM-SHA-256\t4096",
        "b\tSCRAM-SHA-512\t8192",
    ]
    assert run("users", "list", "a", "b")[0] == 0
    assert brokers.asked == [None, ["a", "b"]]
    brokers.refuses = True
    assert run("users", "list") == (1, "", "not allowed\n")


def test_a_password_is_set(
    brokers: Brokers, answering: Answering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = answering(brokers)
    file = tmp_path / "password"
    file.write_text("first\nsecond\n")
    done = run("users", "set", "ann", "--password-file", str(file))
    assert done == (0, "Set the password of user 'ann' (SCRAM-SHA-512).\n", "")
    monkeypatch.setattr(sys, "stdin", io.StringIO("given\nmore\n"))
    more = ("--mechanism", "SCRAM-SHA-256", "--iterations", "4096")
    done = run("users", "set", "ann", "--password-file", "-", *more)
    assert done == (0, "Set the password of user 'ann' (SCRAM-SHA-256).\n", "")
    assert brokers.asked == [
        [ScramUpsertion("ann", SHA_512, "first", 8192)],
        [ScramUpsertion("ann", SHA_256, "given", 4096)],
    ]
    brokers.refuses = True
    assert run("users", "set", "ann", "--password-file", str(file)) == (1, "", "not allowed\n")


def test_a_password_has_to_come_from_somewhere(
    brokers: Brokers, answering: Answering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = answering(brokers)
    file = tmp_path / "password"
    file.write_text("")
    assert run("users", "set", "ann", "--password-file", str(file)) == (2, "", f"{file} is empty\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO("never read\n"))
    told = "give the password with --password-file (- is standard input)\n"
    assert run("users", "set", "ann") == (2, "", told)
    assert brokers.asked == []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("getpass.getpass", lambda prompt: prompt)
    assert run("users", "set", "ann")[0] == 0
    assert brokers.asked == [[ScramUpsertion("ann", SHA_512, "Password of ann: ")]]


def test_passwords_are_deleted(brokers: Brokers, answering: Answering) -> None:
    run = answering(brokers)
    told = "".join(f"Deleted the password of user '{name}' (SCRAM-SHA-256).\n" for name in "ab")
    assert run("users", "delete", "a", "b", "--mechanism", "SCRAM-SHA-256") == (0, told, "")
    assert brokers.asked == [[ScramDeletion("a", SHA_256), ScramDeletion("b", SHA_256)]]
    brokers.refuses = True
    assert run("users", "delete", "a") == (1, "", "not allowed\n")


# Quotas


def test_quotas_are_listed(brokers: Brokers, answering: Answering) -> None:
    run = answering(brokers)
    assert run("quotas", "list", "-o", "tsv")[1].splitlines() == [
        "entity\tquota\tvalue",
        "user a, client-id (default)\tz\t3.0",
        "user b\tx\t1.5",
        "user b\ty\t2.0",
    ]
    assert run("quotas", "list", "--user", "u", "--client", "<default>", "--ip", "1.2.3.4")[0] == 0
    assert brokers.asked == [
        {"user": None, "client_id": None, "ip": None},
        {"user": "u", "client_id": QUOTA_DEFAULT, "ip": "1.2.3.4"},
    ]


def test_quotas_are_set_and_deleted(brokers: Brokers, answering: Answering) -> None:
    run = answering(brokers)
    done = run("quotas", "set", "--user", "<default>", "--client", "c", "x=1", "y=2.5")
    assert done == (0, "Changed the quotas of user (default), client-id c.\n", "")
    assert run("quotas", "delete", "--ip", "1.2.3.4", "x", "y") == (0, "Changed the quotas of ip 1.2.3.4.\n", "")
    assert brokers.asked == [
        {QuotaEntity(user=QUOTA_DEFAULT, client_id="c"): {"x": 1.0, "y": 2.5}},
        {QuotaEntity(ip="1.2.3.4"): {"x": None, "y": None}},
    ]
    brokers.refuses = True
    assert run("quotas", "delete", "--user", "u", "x") == (1, "", "not allowed\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["acls", "list", "--operation", "fly"], "ResourceType and operation: 'fly' is no operation"),
        (["users", "set"], "name one user whose password is to be set"),
        (["users", "set", "a", "b"], "name one user whose password is to be set"),
        (["users", "delete"], "which user is not said"),
        (["quotas", "set", "x=1"], "whom the quota is for is not said: --user, --client or --ip"),
        (["quotas", "set", "--user", "u"], "which quota is not said, such as producer_byte_rate=1048576"),
        (["quotas", "delete", "--ip", "i"], "which quota is not said, such as producer_byte_rate=1048576"),
        (
            ["quotas", "set", "--client", "c", "x=much"],
            "a quota is a number: could not convert string to float: 'much'",
        ),
    ],
)
def test_what_is_not_understood_asks_nothing(
    brokers: Brokers, answering: Answering, arguments: list[str], told: str
) -> None:
    code, shown, error = answering(brokers)(arguments[0], *arguments[1:])
    assert (code, shown, brokers.asked) == (2, "", [])
    assert error.splitlines()[-1].removeprefix("Error: ") == told


# Under Kafka's name, all of it belongs to settings


def test_users_and_clients_have_settings_under_kafkas_name(brokers: Brokers, answering: Answering) -> None:
    run = answering(brokers)
    code, shown, error = run("kafka-configs.sh", "--describe", "--user", "b")
    assert (code, error) == (0, "")
    assert shown.splitlines() == [
        "Quota configs for user-principal 'b' are x=1.5, y=2.0",
        "Quota configs for user-principal 'a', the default client-id are z=3.0",
        "SCRAM credential configs for user-principal 'a' are SCRAM-SHA-512=iterations=5000",
        "SCRAM credential configs for user-principal 'b' are SCRAM-SHA-256=iterations=4096, "
        "SCRAM-SHA-512=iterations=8192",
    ]
    assert brokers.asked == [{"user": "b", "client_id": None, "ip": None, "strict": True}, ["b"]]
    done = run("kafka-configs.sh", "--alter", "--user", "b", "--add-config", "x=1")
    assert done == (0, "Completed updating config for user b.\n", "")
    assert brokers.asked[2:] == [{QuotaEntity(user="b"): {"x": 1.0}}]


def test_a_broker_that_knows_no_passwords_shows_quotas_all_the_same(brokers: Brokers, answering: Answering) -> None:
    async def unsupported(users: list[str] | None) -> Any:
        raise ClientError("not served", code=ErrorCode.UNSUPPORTED_VERSION)

    brokers.describe_user_scram_credentials = unsupported  # type: ignore[method-assign]
    code, shown, error = answering(brokers)("kafka-configs.sh", "--describe", "--user", "b")
    assert (code, error) == (0, "") and len(shown.splitlines()) == 2


def test_what_brokers_refuse_is_told_in_kafkas_words(brokers: Brokers, answering: Answering) -> None:
    brokers.refuses = True
    code, shown, error = answering(brokers)("kafka-configs.sh", "--alter", "--user", "b", "--add-config", "x=1")
    assert (code, shown) == (1, "")
    assert error.splitlines() == [
        "Error while executing config command with args '--alter --user b --add-config x=1 --bootstrap-server h:1'",
        "java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.ClusterAuthorizationException: "
        "not allowed",
    ]
