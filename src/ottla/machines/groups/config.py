"""What the broker's configuration says about groups, and the one view of the cluster that groups need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from ottla.base.types import Uuid


class MigrationPolicy(Enum):
    """Which groups may change their protocol while they have members: group.consumer.migration.policy."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def allows_upgrade(self) -> bool:
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def allows_downgrade(self) -> bool:
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


class ConsumerTimeouts(NamedTuple):
    """Of the members of a KIP-848 group."""

    session_timeout_ms: int
    heartbeat_interval_ms: int


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Defaults are Kafka's; each field is named after its broker setting."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    new_member_join_timeout_ms: int = 300_000
    """A new member cannot send heartbeats yet; it may wait this long for the rebalance that takes it in."""
    max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 10_080 * 60_000

    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_max_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    own_consumer_timeouts: Mapping[str, ConsumerTimeouts] = field(default_factory=dict)
    """Of the groups that have settings of their own. The broker changes it while groups live."""
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL

    def consumer_timeouts(self, group_id: str) -> ConsumerTimeouts:
        own = self.own_consumer_timeouts.get(group_id)
        if own is not None:
            return own
        return ConsumerTimeouts(self.consumer_session_timeout_ms, self.consumer_heartbeat_interval_ms)


class TopicView(Protocol):
    """The topics of the cluster, as they are now."""

    def names(self) -> Iterable[str]: ...

    def partition_count(self, name: str) -> int | None:
        """None if there is no such topic."""

    def topic_id(self, name: str) -> Uuid | None: ...

    def name_of(self, topic_id: Uuid) -> str | None: ...
