"""What every client can be asked to do. Calls block; each uses connections of its own and closes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from tests.interop.dataset import Received, Sample

PATIENCE_S = 20
"""How long a peer tries before a test has failed. Nothing waits this long when things work."""
LONG_WAIT_MS = 25_000
"""How long a fetch may wait for records where a test shows that it is answered before: longer than its patience."""
SHORT_POLL_MS = 200
"""How long a reader asks for records where there are none."""


class RefusedError(Exception):
    """The broker answered with an error; `code` is Kafka's."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class Peer(ABC):
    name: str
    gives_timestamps = True
    """Whether it can send a record with a time of the caller's choosing."""

    is_librdkafka = False

    def can_send(self, sample: Sample) -> bool:
        """Some clients refuse records that Kafka allows."""
        return True

    @abstractmethod
    def create_topic(self, bootstrap: str, topic: str) -> None:
        """A topic of one partition, with the broker's settings."""

    @abstractmethod
    def write(
        self,
        bootstrap: str,
        topic: str,
        samples: Sequence[Sample],
        *,
        partition: int = 0,
        codec: str = "none",
        idempotent: bool = False,
    ) -> None:
        """Returns when all are acknowledged with acks=all; raises `RefusedError` if one of them is not."""

    @abstractmethod
    def read(self, bootstrap: str, topic: str, count: int, *, partition: int = 0, offset: int = 0) -> list[Received]:
        """Waits for `count` records from `offset` on; returns fewer when its patience ends."""

    @abstractmethod
    def read_from_time(self, bootstrap: str, topic: str, timestamp_ms: int, count: int) -> list[Received]:
        """The next `count` records after seeking in partition 0 by time."""

    @abstractmethod
    def read_at_end(
        self, bootstrap: str, topic: str, end_offset: int, once_waiting: Callable[[], None]
    ) -> list[Received]:
        """Reads from the end of partition 0, calls `once_waiting` when nothing was there, and waits for one record."""
