"""An authorizer that decides by a table of rules, with Kafka's rules of precedence. Keeps nothing on disk.

A denial wins over every permission, and what no rule names is refused. To be allowed to change something implies to be
allowed to describe it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.base.acls import AclPattern, AclPermission
from ottla.broker.authorizer import Operation, ResourceType

ANYTHING = "*"
"""As the name of a rule's resource, as its principal after `User:`, and as its host."""
ANYBODY = f"User:{ANYTHING}"

_IMPLIED_BY: dict[Operation, frozenset[Operation]] = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
_NOTHING: frozenset[Operation] = frozenset()


class Rule(NamedTuple):
    permission: AclPermission
    operation: Operation
    resource_type: ResourceType
    name: str = ANYTHING
    pattern: AclPattern = AclPattern.LITERAL
    principal: str = ANYBODY
    host: str = ANYTHING

    def is_about(self, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        return (
            self.resource_type == resource_type
            and self.principal in (principal, ANYBODY)
            and self.host in (host, ANYTHING)
            and self._covers(operation)
        )

    def _covers(self, operation: Operation) -> bool:
        if self.operation in (operation, Operation.ALL):
            return True
        # To refuse reading does not refuse to describe.
        return self.permission == AclPermission.ALLOW and self.operation in _IMPLIED_BY.get(operation, _NOTHING)

    def matches(self, name: str) -> bool:
        if self.pattern == AclPattern.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, ANYTHING)

    def contains(self, other: Rule) -> bool:
        """Whether every resource the other rule matches is matched by this one."""
        if other.pattern == AclPattern.LITERAL and other.name != ANYTHING:
            return self.matches(other.name)
        is_everything = self.pattern == AclPattern.LITERAL and self.name == ANYTHING
        if other.pattern == AclPattern.LITERAL:
            return is_everything
        return is_everything or (self.pattern == AclPattern.PREFIXED and other.name.startswith(self.name))


class TableAuthorizer:
    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self.generation = 0
        self._rules = tuple(rules)

    @property
    def rules(self) -> tuple[Rule, ...]:
        return self._rules

    def replace(self, rules: Iterable[Rule]) -> None:
        self._rules = tuple(rules)
        self.generation += 1

    def allows(self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        is_allowed = False
        for rule in self._rules:
            if rule.is_about(principal, host, operation, resource_type) and rule.matches(name):
                if rule.permission == AclPermission.DENY:
                    return False
                is_allowed = True
        return is_allowed

    def allows_any(self, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        about = [rule for rule in self._rules if rule.is_about(principal, host, operation, resource_type)]
        denials = [rule for rule in about if rule.permission == AclPermission.DENY]
        return any(
            rule.permission == AclPermission.ALLOW and not any(denial.contains(rule) for denial in denials)
            for rule in about
        )
