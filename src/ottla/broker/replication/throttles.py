"""Which replicas are copied no faster than an operator allows, as leader and as follower (KIP-73).

Replicas in sync are never held up, and what they fetch is not counted: a throttle is for those that catch up.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.clock import Clock
from ottla.base.types import TopicPartition
from ottla.broker.config.broker_config import BrokerConfig
from ottla.machines.replication.throttle import CopyRate

UNLIMITED = 2**63 - 1
_BURST_MS = 500
_ALL = "*"


class ReplicationThrottle:
    """Of one side: `side` is leader or follower, as in the names of the settings."""

    def __init__(
        self,
        side: str,
        broker_id: int,
        config: Callable[[], BrokerConfig],
        topic_overrides: Callable[[str], dict[str, str]],
        clock: Clock,
    ) -> None:
        self._rate_name = f"{side}.replication.throttled.rate"
        self._replicas_name = f"{side}.replication.throttled.replicas"
        self._own = f":{broker_id}"
        self._config = config
        self._topic_overrides = topic_overrides
        self._clock = clock
        self._rate = CopyRate(_BURST_MS)
        self.limit = UNLIMITED
        self.reconfigured()

    def reconfigured(self) -> None:
        self.limit = self._config().integer(self._rate_name)

    def covers(self, tp: TopicPartition) -> bool:
        """Whether this broker's replica of the partition is to be held back while it, or whoever fetches it, is not in
        sync."""
        if self.limit >= UNLIMITED:
            return False
        listed = self._topic_overrides(tp.topic).get(self._replicas_name, "")
        if not listed:
            return False
        return listed.strip() == _ALL or f"{tp.partition}{self._own}" in map(str.strip, listed.split(","))

    def room(self) -> int:
        return self._rate.room(self.limit, self._clock.monotonic_ms())

    def wait_ms(self) -> int:
        return self._rate.wait_ms(self.limit, self._clock.monotonic_ms())

    def record(self, count: int) -> None:
        self._rate.record(count, self.limit, self._clock.monotonic_ms())
