"""The way into an open batch that needs no lock: places that belong to whoever draws their number.

Drawing a number and storing a value at its place are each one step to the interpreter, so any thread may add a value at
any time. A lane is opened and closed with the producer's lock held. Whoever finds it closed after storing a value asks,
with the lock, whether that was in time: what is stored after closing is seen by nobody.

All values of a lane get one timestamp. It has so few places that they are used up before the time is another one; where
the next value may be long in coming, the time is asked for each (`is_timed`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ottla.client.core.producer.batch import Batch

FEWEST_PLACES = 16
MOST_PLACES = 1024


class _Closed(NamedTuple):
    """What a lane has taken."""

    values: list[bytes]
    lengths: list[int]
    holes: list[int]
    """Numbers that were drawn in time, and whose places stayed empty."""


class Lane:
    __slots__ = (
        "_all_places",
        "_closed",
        "base",
        "batch",
        "length",
        "most",
        "numbers",
        "opened_ms",
        "place_count",
        "places",
        "size_before",
        "stamped_until_s",
        "timed_length",
        "used_up_ms",
    )

    def __init__(
        self,
        batch: Batch,
        base: int,
        *,
        most: int,
        place_count: int,
        length: int,
        timestamp_ms: int,
        is_timed: bool,
        opened_ms: int,
        size_before: int,
    ) -> None:
        self.batch = batch
        self.base = base
        """How many records of the batch are before those of the lane."""
        self.size_before = size_before
        self.places: list[bytes | None] = [None] * place_count
        """Another, empty list once the lane is closed."""
        self._all_places = self.places
        self.numbers: Iterator[int] = count()
        self.place_count = place_count
        self.most = most
        """How many places there would be if there were room for them."""
        self.length = -1 if is_timed else length
        """The longest value that may be added without asking for the time."""
        self.timed_length = length
        """The longest value that may be added until `stamped_until_s`."""
        self.opened_ms = opened_ms
        self.used_up_ms: int | None = None
        """When a value came that the lane did not take. It may be long until there is memory for the next lane."""
        self.stamped_until_s = (timestamp_ms + 1) / 1000
        self._closed: _Closed | None = None

    def most_in_next(self) -> int:
        """How many places the next lane may have, so that they are used up within about a millisecond."""
        assert self.used_up_ms is not None
        took_ms = self.used_up_ms - self.opened_ms
        # Half a millisecond is enough to see the next one begin, so one is no reason for fewer.
        return max(self.most // took_ms, FEWEST_PLACES) if took_ms else min(2 * self.most, MOST_PLACES)

    def close(self) -> tuple[list[bytes], list[int]]:
        """Nothing is added from now on; returns the values that were, and their lengths.

        Whoever is interrupted in here may call again.
        """
        if self._closed is None:
            self.places = []
            # Only now: what is stored up to here was stored before anybody could find the lane closed.
            found: list[Any] = self._all_places[: next(self.numbers)]
            try:
                self._closed = _Closed(found, list(map(len, found)), [])
            except TypeError:
                # Somebody has drawn a number, and is too late to store anything.
                kept = [value for value in found if value is not None]
                holes = [number for number, value in enumerate(found) if value is None]
                self._closed = _Closed(kept, list(map(len, kept)), holes)
        return self._closed.values, self._closed.lengths

    def was_in_time(self, number: int) -> bool:
        """Whether what was stored at this place belongs to the batch, asked when the lane is closed."""
        assert self._closed is not None
        values, _, holes = self._closed
        return number < len(values) + len(holes) and number not in holes

    def index_of(self, number: int) -> int:
        """The index in the batch of the value at this place."""
        holes = self._closed.holes if self._closed is not None else ()
        return self.base + number - bisect_left(holes, number)
