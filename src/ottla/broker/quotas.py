"""Quotas of clients in bytes per second: whom a limit is for, how fast a client is, how long it has to wait.

Rates are taken over `quota.window.num` samples of `quota.window.size.seconds` each, as Kafka takes them. A client above
its limit is answered at once, told how long to wait, and not read for that time (KIP-219).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

DEFAULT: Final = "<default>"
"""In the place of a user or a client id: everybody who has no limit of their own."""

_CLIENTS_MAX = 10_000
"""Clients choose their ids. With more of them than this, sensors that nothing was recorded in lately are dropped."""


class QuotaEntity(NamedTuple):
    """Whom a limit is for: a user, a client id, or both together. None means that it does not matter."""

    user: str | None = None
    client_id: str | None = None


Limits = Mapping[QuotaEntity, float]
"""Bytes per second."""


@dataclass(frozen=True)
class QuotaLimits:
    """All limits of a broker."""

    producers: Limits = field(default_factory=dict)
    consumers: Limits = field(default_factory=dict)

    def __post_init__(self) -> None:
        for entity, limit in (*self.producers.items(), *self.consumers.items()):
            if limit <= 0:
                raise ValueError(f"a quota is more than nothing, but that of {entity} is {limit}")


def limit_of(limits: Limits, user: str, client_id: str) -> tuple[QuotaEntity, float] | None:
    """The limit that holds for a client, and with whom it shares it. The most particular one wins."""
    for entity in (
        QuotaEntity(user, client_id),
        QuotaEntity(user, DEFAULT),
        QuotaEntity(DEFAULT, client_id),
        QuotaEntity(DEFAULT, DEFAULT),
        QuotaEntity(user),
        QuotaEntity(DEFAULT),
        QuotaEntity(None, client_id),
        QuotaEntity(None, DEFAULT),
    ):
        limit = limits.get(entity)
        if limit is not None:
            shared_by = QuotaEntity(
                None if entity.user is None else user, None if entity.client_id is None else client_id
            )
            return shared_by, limit
    return None


class ByteRate:
    """Sensor of those who share one limit."""

    __slots__ = (
        "_allowance",
        "_before",
        "_end_ms",
        "_last_ms",
        "_limit",
        "_older",
        "_samples",
        "_start_ms",
        "_total",
        "_window_ms",
    )

    def __init__(self, limit: float, *, samples: int, window_ms: int) -> None:
        self._limit = limit
        self._samples = samples
        self._window_ms = window_ms
        self._allowance = limit * (samples - 1) * window_ms / 1000
        """Whoever has moved no more than this in all samples is below the limit: a rate is never taken over less."""
        self._older: deque[tuple[int, int, int]] = deque()
        """Samples that are full: first time, last time, bytes."""
        self._start_ms = self._end_ms = self._last_ms = -window_ms
        """Of the sample that is being filled: when it began, when it will end, when anything was recorded last."""
        self._total = 0
        """Bytes of all samples, and of those that have to go when the rate is taken."""
        self._before = 0
        """The total without what is in the sample that is being filled."""

    @property
    def most_in_window(self) -> int:
        """Who fetches more than this at once has to wait for certain."""
        return int(self._allowance)

    def is_idle(self, now_ms: int) -> bool:
        return now_ms - self._last_ms >= self._samples * self._window_ms

    def record(self, size: int, now_ms: int) -> int:
        """Notes bytes that were moved; says for how many milliseconds the client has to wait."""
        if now_ms >= self._end_ms:
            self._begin_sample(now_ms)
        self._last_ms = now_ms
        total = self._total = self._total + size
        if total <= self._allowance:
            return 0
        return self._throttle_ms(now_ms)

    def take_back(self, size: int) -> None:
        """What was recorded last is not going to be moved after all."""
        self._total -= size

    def _begin_sample(self, now_ms: int) -> None:
        filled = self._total - self._before
        if filled:
            self._older.append((self._start_ms, self._last_ms, filled))
        # One more than counts: the oldest may reach into the time that is looked at.
        if len(self._older) > self._samples:
            self._total -= self._older.popleft()[2]
        self._start_ms, self._end_ms, self._before = now_ms, now_ms + self._window_ms, self._total

    def _throttle_ms(self, now_ms: int) -> int:
        older, window_ms = self._older, self._window_ms
        while older and now_ms - older[0][1] >= self._samples * window_ms:
            gone = older.popleft()[2]
            self._total -= gone
            self._before -= gone
        elapsed_ms = now_ms - (older[0][0] if older else self._start_ms)
        # A client that has just begun is not taken for one that goes on like this.
        missing_windows = self._samples - 1 - elapsed_ms // window_ms
        elapsed_ms = max(elapsed_ms + max(missing_windows, 0) * window_ms, 1)
        rate = self._total * 1000 / elapsed_ms
        return round((rate - self._limit) / self._limit * elapsed_ms) if rate > self._limit else 0


class ClientRates(NamedTuple):
    """Where the bytes of a client are recorded; None where it has no limit."""

    producer: ByteRate | None
    consumer: ByteRate | None


class ClientQuotas:
    """The limits in force, and the sensors of everybody who has one."""

    def __init__(self, limits: QuotaLimits, *, samples: int, window_ms: int) -> None:
        self.generation = 0
        """Another number than before once sensors that were given out are not to be used any more."""
        self.is_limiting = False
        self._samples = samples
        self._window_ms = window_ms
        self._limits = limits
        self._producers: dict[QuotaEntity, ByteRate] = {}
        self._consumers: dict[QuotaEntity, ByteRate] = {}
        self._rates: dict[tuple[str, str], ClientRates] = {}
        """What was found, by principal and client id."""
        self.replace(limits)

    def replace(self, limits: QuotaLimits) -> None:
        """Everybody begins anew under the new limits."""
        self._limits = limits
        self.is_limiting = bool(limits.producers or limits.consumers)
        self._producers.clear()
        self._consumers.clear()
        self._rates.clear()
        self.generation += 1

    def rates_of(self, principal: str, client_id: str, now_ms: int) -> ClientRates:
        known = self._rates.get((principal, client_id))
        if known is not None:
            return known
        if len(self._rates) >= _CLIENTS_MAX:
            self._drop_idle(now_ms)
        user = principal.partition(":")[2]
        rates = ClientRates(
            self._sensor(self._producers, limit_of(self._limits.producers, user, client_id)),
            self._sensor(self._consumers, limit_of(self._limits.consumers, user, client_id)),
        )
        self._rates[principal, client_id] = rates
        return rates

    def _sensor(self, sensors: dict[QuotaEntity, ByteRate], limit: tuple[QuotaEntity, float] | None) -> ByteRate | None:
        if limit is None:
            return None
        shared_by, bytes_per_second = limit
        sensor = sensors.get(shared_by)
        if sensor is None:
            sensor = ByteRate(bytes_per_second, samples=self._samples, window_ms=self._window_ms)
            sensors[shared_by] = sensor
        return sensor

    def _drop_idle(self, now_ms: int) -> None:
        for sensors in (self._producers, self._consumers):
            for entity in [entity for entity, sensor in sensors.items() if sensor.is_idle(now_ms)]:
                del sensors[entity]
        self._rates.clear()
        self.generation += 1
