"""Who may do what, and how much of it: access rules, quotas and SCRAM credentials as plain values.

The numbers are Kafka's. One that this version does not know is UNKNOWN, whatever it says.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final, Literal, NamedTuple, TypeAlias

from ottla.base.acls import AclOperation, AclPattern, AclPermission, AclResourceType

# Access rules


class AclBinding(NamedTuple):
    """One rule: who may do, or may not do, what with which resources."""

    resource_type: AclResourceType
    name: str
    """`*` stands for every resource of the type."""
    principal: str
    """Such as `User:alice`; `User:*` is everybody."""
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    host: str = "*"
    pattern: AclPattern = AclPattern.LITERAL

    def __str__(self) -> str:
        permission, operation, resource_type = map(_label, (self.permission, self.operation, self.resource_type))
        kind = "" if self.pattern == AclPattern.LITERAL else f"{_label(self.pattern)} "
        return f"{permission} {self.principal} from {self.host} to {operation} {resource_type} {kind}{self.name}"


class AclFilter(NamedTuple):
    """The rules that agree with all that is given; what is left out may be anything."""

    resource_type: AclResourceType = AclResourceType.ANY
    name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY
    host: str | None = None
    pattern: AclPattern = AclPattern.ANY

    @classmethod
    def exactly(cls, binding: AclBinding) -> AclFilter:
        """Matches one rule and no other."""
        return cls(*binding)

    def __str__(self) -> str:
        given = ", ".join(
            f"{name}={_label(value)}" for name, value in self._asdict().items() if value != getattr(EVERY_ACL, name)
        )
        return f"rules with {given}" if given else "all rules"


EVERY_ACL = AclFilter()


def _label(value: object) -> str:
    return value.name.lower() if isinstance(value, IntEnum) else str(value)


# Quotas


class QuotaScope(Enum):
    DEFAULT = "default"
    ANY = "any"

    def __repr__(self) -> str:
        return f"QUOTA_{self.name}"


QUOTA_DEFAULT: Final = QuotaScope.DEFAULT
"""In place of a name: what holds for everybody who has no quota of their own."""

QUOTA_ANY: Final = QuotaScope.ANY
"""In place of a name, when quotas are asked for: whoever it is, and the default too."""

QuotaName: TypeAlias = str | Literal[QuotaScope.DEFAULT]


class QuotaEntity(NamedTuple):
    """Whom a quota is for: a user, a client id, both together, or an address. None: not a part of it."""

    user: QuotaName | None = None
    client_id: QuotaName | None = None
    ip: QuotaName | None = None
    others: tuple[tuple[str, QuotaName], ...] = ()
    """Parts of types that Kafka may have in the future, and their names."""

    def __repr__(self) -> str:
        given = (f"{name}={value!r}" for name, value in self._asdict().items() if value not in (None, ()))
        return f"QuotaEntity({', '.join(given)})"

    def __str__(self) -> str:
        return ", ".join(f"{kind} {name if isinstance(name, str) else '(default)'}" for kind, name in self.parts())

    def parts(self) -> list[tuple[str, QuotaName]]:
        """What it is made of, by the types' names in the protocol."""
        named = (("user", self.user), ("client-id", self.client_id), ("ip", self.ip))
        return [*((kind, name) for kind, name in named if name is not None), *self.others]


# SCRAM credentials


class ScramMechanism(IntEnum):
    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


class ScramUpsertion(NamedTuple):
    """Gives a user a password, or another one. The password itself is not sent, and never shown."""

    user: str
    mechanism: ScramMechanism
    password: str | bytes
    iterations: int = 8192
    """Kafka takes 4096 to 16384."""
    salt: bytes | None = None
    """Random if left out."""

    def __repr__(self) -> str:
        return f"ScramUpsertion(user={self.user!r}, mechanism={self.mechanism!r}, iterations={self.iterations!r})"


class ScramDeletion(NamedTuple):
    user: str
    mechanism: ScramMechanism


ScramChange: TypeAlias = ScramUpsertion | ScramDeletion
