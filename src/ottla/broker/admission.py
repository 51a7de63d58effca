"""Who is at the other end of a connection and what it may do: asked by every way into the broker, short or long.

Remembers decisions and quota sensors, so that the short ways stay short: an authorizer's change of mind
costs a comparison of two numbers per request.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from ottla.base.errors import ProtocolError
from ottla.broker.access import BEFORE_AUTHENTICATION
from ottla.broker.authorizer import AllowAll, Authorizer, Operation, ResourceType
from ottla.broker.quotas import ClientQuotas, ClientRates, QuotaLimits
from ottla.wire.header import read_request_header

ANONYMOUS = "User:ANONYMOUS"
"""Everybody on a listener that asks for no name."""

_CLIENT_ID_POSITION = 8
"""Where its length stands in a request frame; the client id is all from here to the body."""

_DECISIONS_MAX = 10_000
"""Peers name topics and groups as they like: their tables do not grow without bounds."""


@dataclass(frozen=True)
class AccessRules:
    """Whom a broker lets do what, and how fast. Without any, everybody may do everything."""

    authorizer: Authorizer = field(default_factory=AllowAll)
    quotas: QuotaLimits = field(default_factory=QuotaLimits)


class Admission:
    __slots__ = (
        "_authorizer",
        "_decisions",
        "_generation",
        "_known_client",
        "_quotas",
        "_readable",
        "_readable_groups",
        "_writable",
        "last_commit",
        "listener",
        "peer_host",
        "principal",
    )

    def __init__(
        self, authorizer: Authorizer, quotas: ClientQuotas, *, listener: str, peer_host: str, principal: str | None
    ) -> None:
        self.listener = listener
        self.peer_host = peer_host
        self.principal = principal
        """None until the peer has authenticated itself, and then it may do nothing."""
        self._authorizer = authorizer
        self._generation = authorizer.generation
        self._writable: dict[str, bool] = {}
        self._readable: dict[str, bool] = {}
        self._readable_groups: dict[str, bool] = {}
        self._decisions: dict[tuple[ResourceType, Operation], dict[str, bool]] = {
            (ResourceType.TOPIC, Operation.WRITE): self._writable,
            (ResourceType.TOPIC, Operation.READ): self._readable,
            (ResourceType.GROUP, Operation.READ): self._readable_groups,
        }
        self._quotas = quotas
        self._known_client: _KnownClient | None = None
        self.last_commit: Any = None
        """What the short way of offset commits remembers; void as soon as the rules or the principal change."""

    def authenticated(self, principal: str) -> None:
        self.principal = principal
        self.last_commit = None
        self._forget()
        self._known_client = None

    def check(self, api_key: int) -> None:
        """Raises ProtocolError if the peer has to say first who it is."""
        if self.principal is None and api_key not in BEFORE_AUTHENTICATION:
            raise ProtocolError(f"api {api_key} was asked for before authentication")

    # What it may do. The first three are what the short ways need, remembered in the shortest way.

    def may_write(self, topic: str) -> bool:
        if self._generation != self._authorizer.generation:
            self._forget()
        decision = self._writable.get(topic)
        return self.may(Operation.WRITE, ResourceType.TOPIC, topic) if decision is None else decision

    def may_read(self, topic: str) -> bool:
        if self._generation != self._authorizer.generation:
            self._forget()
        decision = self._readable.get(topic)
        return self.may(Operation.READ, ResourceType.TOPIC, topic) if decision is None else decision

    def may_read_group(self, group_id: str) -> bool:
        if self._generation != self._authorizer.generation:
            self._forget()
        decision = self._readable_groups.get(group_id)
        return self.may(Operation.READ, ResourceType.GROUP, group_id) if decision is None else decision

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        principal = self.principal
        if principal is None:
            return False
        authorizer = self._authorizer
        if self._generation != authorizer.generation:
            self._forget()
        decisions = self._decisions.setdefault((resource_type, operation), {})
        decision = decisions.get(name)
        if decision is None:
            if len(decisions) >= _DECISIONS_MAX:
                decisions.clear()
            decision = authorizer.allows(principal, self.peer_host, operation, resource_type, name)
            decisions[name] = decision
        return decision

    def may_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        principal = self.principal
        return principal is not None and self._authorizer.allows_any(
            principal, self.peer_host, operation, resource_type
        )

    def _forget(self) -> None:
        self._generation = self._authorizer.generation
        for decisions in self._decisions.values():
            decisions.clear()

    # How much of it

    def rates(self, client_id: str | None, now_ms: int) -> ClientRates:
        return self._quotas.rates_of(self.principal or ANONYMOUS, client_id or "", now_ms)

    def rates_in(self, frame: memoryview, position: int, now_ms: int) -> ClientRates:
        """The same for the short ways, which do not read the header: the body starts at `position`."""
        known = self._known_client
        if (
            known is not None
            and known.position == position
            and known.quotas_generation == self._quotas.generation
            and known.unpack_client_id(frame, _CLIENT_ID_POSITION) == known.client_id
        ):
            return known.rates
        rates = self.rates(read_request_header(frame).client_id, now_ms)
        self._known_client = _KnownClient(frame, position, self._quotas.generation, rates)
        return rates


class _KnownClient:
    """The last client id of a connection. Nearly all connections have only one, so that to compare it is enough."""

    __slots__ = ("client_id", "position", "quotas_generation", "rates", "unpack_client_id")

    def __init__(self, frame: memoryview, position: int, quotas_generation: int, rates: ClientRates) -> None:
        self.position = position
        """Where the bodies of its requests start."""
        # One call, where a slice and its copy are two.
        self.unpack_client_id = struct.Struct(f"{position - _CLIENT_ID_POSITION}s").unpack_from
        self.client_id = self.unpack_client_id(frame, _CLIENT_ID_POSITION)
        self.quotas_generation = quotas_generation
        self.rates = rates
