"""Rules decide as Kafka's do: a denial wins, a change implies to describe, a prefix covers what begins with it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.acls import AclPattern, AclPermission
from ottla.broker.authorizer import Operation, ResourceType
from ottla.broker.table_authorizer import ANYTHING, Rule, TableAuthorizer

ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
LITERAL, PREFIXED = AclPattern.LITERAL, AclPattern.PREFIXED
TOPIC = ResourceType.TOPIC
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
ME, HERE = "User:me", "10.0.0.1"


def allows(rules: list[Rule], operation: Operation, name: str, principal: str = ME, host: str = HERE) -> bool:
    return TableAuthorizer(rules).allows(principal, host, operation, TOPIC, name)


def test_what_no_rule_names_is_refused() -> None:
    assert not allows([], READ, "a")
    assert not allows([Rule(ALLOW, READ, ResourceType.GROUP, "a")], READ, "a")
    assert not allows([Rule(ALLOW, READ, TOPIC, "a")], READ, "b")
    assert not allows([Rule(ALLOW, READ, TOPIC, "a")], WRITE, "a")


@pytest.mark.parametrize(
    ("rule", "is_allowed"),
    [
        (Rule(ALLOW, READ, TOPIC, "orders"), True),
        (Rule(ALLOW, READ, TOPIC, ANYTHING), True),
        (Rule(ALLOW, READ, TOPIC, "ord", PREFIXED), True),
        (Rule(ALLOW, READ, TOPIC, "ord", LITERAL), False),
        (Rule(ALLOW, READ, TOPIC, ANYTHING, PREFIXED), False),
        (Rule(ALLOW, Operation.ALL, TOPIC, "orders"), True),
        (Rule(ALLOW, READ, TOPIC, "orders", principal=ME), True),
        (Rule(ALLOW, READ, TOPIC, "orders", principal="User:you"), False),
        (Rule(ALLOW, READ, TOPIC, "orders", host=HERE), True),
        (Rule(ALLOW, READ, TOPIC, "orders", host="10.0.0.2"), False),
    ],
)
def test_whom_and_what_a_rule_is_about(rule: Rule, is_allowed: bool) -> None:
    assert allows([rule], READ, "orders") is is_allowed


def test_a_denial_wins_wherever_it_stands() -> None:
    allow, deny = Rule(ALLOW, Operation.ALL, TOPIC), Rule(DENY, READ, TOPIC, "a")
    for rules in ([allow, deny], [deny, allow]):
        assert not allows(rules, READ, "a")
        assert allows(rules, WRITE, "a")
        assert allows(rules, READ, "b")


@pytest.mark.parametrize("operation", [READ, WRITE, Operation.DELETE, Operation.ALTER])
def test_who_may_change_something_may_describe_it(operation: Operation) -> None:
    assert allows([Rule(ALLOW, operation, TOPIC, "a")], DESCRIBE, "a")
    # But to refuse the one does not refuse the other.
    assert allows([Rule(ALLOW, Operation.ALL, TOPIC), Rule(DENY, operation, TOPIC, "a")], DESCRIBE, "a")


def test_who_may_alter_settings_may_see_them() -> None:
    rules = [Rule(ALLOW, Operation.ALTER_CONFIGS, TOPIC, "a")]
    assert allows(rules, Operation.DESCRIBE_CONFIGS, "a")
    assert not allows(rules, DESCRIBE, "a")


def test_a_change_of_the_rules_is_a_new_generation() -> None:
    authorizer = TableAuthorizer()
    before = authorizer.generation
    authorizer.replace([Rule(ALLOW, READ, TOPIC, "a")])
    assert authorizer.generation != before
    assert authorizer.allows(ME, HERE, READ, TOPIC, "a")


_names = st.text("ab", min_size=1, max_size=3)
_rules = st.builds(
    lambda permission, pattern, name: Rule(permission, WRITE, TOPIC, name, pattern),
    st.sampled_from([ALLOW, DENY]),
    st.sampled_from([LITERAL, PREFIXED]),
    st.one_of(_names, st.just(ANYTHING)),
)


@given(rules=st.lists(_rules, max_size=4))
def test_any_resource_is_one_that_could_be_named(rules: list[Rule]) -> None:
    """Checked against trying: rules of these few letters cannot tell longer names apart than those that are tried."""
    authorizer = TableAuthorizer(rules)
    tried = [f"{rule.name}{end}" for rule in rules for end in ("", "z", "az", "bz")] + ["z"]
    could = any(authorizer.allows(ME, HERE, WRITE, TOPIC, name) for name in tried)
    found = authorizer.allows_any(ME, HERE, WRITE, TOPIC)
    # Several denials together may cover a permission that none of them covers alone: Kafka does not look for that.
    assert found or not could
