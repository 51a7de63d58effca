"""When a client speaks of brokers that it cannot reach, and what it says.

It is told of every failure and success, with the time, and gives the lines that are worth logging: the first failure at
once, then with pauses that double, and one line when the broker is back. One object serves all connections of a client,
or of an application, so that a broker that is gone is told of once, not once for each of them.
"""

from __future__ import annotations

FIRST_PAUSE_MS = 1000
LONGEST_PAUSE_MS = 60_000
FLAPPING_MS = 10_000
"""A broker that comes and goes is told of no more often than this."""
FORGOTTEN_MS = 5 * LONGEST_PAUSE_MS
"""An address that has not failed for as long is not tried any more; if it is, that is another outage."""


class Outages:
    def __init__(self, who: str) -> None:
        self._who = who
        self._by_address: dict[str, _Outage] = {}
        self._told_ms: int | None = None
        self._reached_ms: int | None = None

    def failed(self, address: str, cause: str, now_ms: int) -> str | None:
        """The warning that is due now, if one is; it names all that has failed since the last one."""
        outage = self._by_address.setdefault(address, _Outage(now_ms))
        outage.fail(cause, now_ms)
        # If several brokers are gone, the first has a line of its own, and all of them the next.
        is_early = self._told_ms is not None and now_ms < self._told_ms + FIRST_PAUSE_MS
        if is_early or not outage.may_be_told(now_ms):
            return None
        since_ms, self._told_ms = self._told_ms, now_ms
        failing = self._failing(since_ms)
        is_first = not any(outage.is_told for outage in failing.values())
        for outage in failing.values():
            outage.tell(now_ms)
        if is_first:
            return f"{self._who} cannot reach {_listed(failing)}. Trying again"
        lasting_ms = now_ms - min(outage.since_ms for outage in failing.values())
        return f"{self._who} still cannot reach {_listed(failing)}. Trying again, for {_seconds(lasting_ms)} now"

    def reached(self, address: str, now_ms: int) -> str | None:
        """The line that ends an outage, if its beginning was told."""
        self._reached_ms = now_ms
        outage = self._by_address.get(address)
        if outage is None or not outage.is_open:
            return None
        was_told = outage.is_told
        outage.end()
        if not was_told:
            return None
        return f"{self._who} has reached {address}, after {_seconds(now_ms - outage.since_ms)}"

    def causes(self) -> str:
        """Why brokers could not be reached since one was; empty if nothing is known against them."""
        return _listed(self._failing(self._reached_ms))

    def _failing(self, since_ms: int | None) -> dict[str, _Outage]:
        return {
            address: outage
            # Another thread may ask for the causes.
            for address, outage in list(self._by_address.items())
            if outage.is_open and (since_ms is None or outage.failed_ms > since_ms)
        }


class _Outage:
    """Of one address."""

    def __init__(self, now_ms: int) -> None:
        self.is_open = self.is_told = False
        self.since_ms = self.failed_ms = now_ms
        self.cause = ""
        self._told_ms: int | None = None
        self._pause_ms = 0
        """How long it is not spoken of after that."""

    def fail(self, cause: str, now_ms: int) -> None:
        if not self.is_open or now_ms - self.failed_ms > FORGOTTEN_MS:
            self.is_open = True
            self.is_told = False
            self.since_ms = now_ms
        self.cause = cause
        self.failed_ms = now_ms

    def may_be_told(self, now_ms: int) -> bool:
        return self._told_ms is None or now_ms >= self._told_ms + self._pause_ms

    def tell(self, now_ms: int) -> None:
        self._pause_ms = min(2 * self._pause_ms, LONGEST_PAUSE_MS) if self.is_told else FIRST_PAUSE_MS
        self._told_ms = now_ms
        self.is_told = True

    def end(self) -> None:
        self.is_open = self.is_told = False
        self._pause_ms = FLAPPING_MS


def _listed(outages: dict[str, _Outage]) -> str:
    return "; ".join(f"{address}: {outage.cause}" for address, outage in outages.items())


def _seconds(duration_ms: int) -> str:
    return f"{duration_ms / 1000:.0f} s" if duration_ms >= 1000 else f"{duration_ms} ms"
