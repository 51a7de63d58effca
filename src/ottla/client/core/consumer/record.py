"""One record as a consumer gives it to the application: light, because there are a million of them a second.

Where a record comes from is the same for a whole batch, so it is kept in the class, not in the record: there is one
subclass of ConsumerRecord for each partition, leader epoch and kind of timestamp that was met.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, cast

from ottla.base.types import TopicPartition
from ottla.records.batch import TimestampType
from ottla.records.walk import Header

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # What a key or value is without a deserializer.
    K = TypeVar("K", default=bytes | None)
    V = TypeVar("V", default=bytes | None)
else:
    from typing import TypeVar

    K, V = map(TypeVar, ("K", "V"))


class _Fields(NamedTuple, Generic[K, V]):
    offset: int
    timestamp: int
    key: K
    value: V
    headers: tuple[Header, ...]


class ConsumerRecord(_Fields[K, V]):
    """A record with the topic and partition it was read from. `timestamp` is in milliseconds since 1970."""

    __slots__ = ()

    topic: ClassVar[str]
    partition: ClassVar[int]
    timestamp_type: ClassVar[TimestampType]
    leader_epoch: ClassVar[int | None]
    """Of the leader that took the record in; it goes with a commit, so that truncation is noticed (KIP-320)."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __eq__(self, other: object) -> bool:
        # A tuple of the same fields comes from nowhere.
        return isinstance(other, ConsumerRecord) and (self.topic, self.partition, *self) == (
            other.topic,
            other.partition,
            *other,
        )

    def __ne__(self, other: object) -> bool:
        # Tuples have one of their own, which knows nothing of places.
        return not self == other

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))

    def __repr__(self) -> str:
        return (
            f"ConsumerRecord({self.topic}-{self.partition}@{self.offset}, key={self.key!r}, value={self.value!r},"
            f" timestamp={self.timestamp}, headers={self.headers!r})"
        )

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        origin = (self.topic, self.partition, self.timestamp_type, self.leader_epoch)
        return _rebuild, (origin, tuple(self))


AnyRecord = ConsumerRecord[Any, Any]


def make_record_class(
    topic: str, partition: int, timestamp_type: TimestampType, leader_epoch: int | None
) -> type[AnyRecord]:
    """The class of all records of this origin."""
    origin = {
        "__slots__": (),
        "__module__": __name__,
        "topic": topic,
        "partition": partition,
        "timestamp_type": timestamp_type,
        "leader_epoch": leader_epoch,
    }
    return cast("type[AnyRecord]", type("ConsumerRecord", (ConsumerRecord,), origin))


def _rebuild(origin: tuple[str, int, TimestampType, int | None], fields: tuple[Any, ...]) -> AnyRecord:
    return tuple.__new__(make_record_class(*origin), fields)
