# Written by `make generate` from src/ottla/client/aio/consumer/consumer.py: change that instead.

"""The consumer for threads."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from ottla.base.types import TopicPartition
from ottla.client.aio.consumer.arrow_reading import Bounds, Readable
from ottla.client.aio.consumer.consumer import Consumer as AsyncConsumer
from ottla.client.aio.consumer.consumer import Deserializer
from ottla.client.core.consumer.offset_requests import Membership
from ottla.client.core.consumer.record import K, V
from ottla.client.core.group.protocol import GroupAssignor
from ottla.client.core.group.rebalance import ConsumerInterceptor, RebalanceListener
from ottla.client.sync.consumer.polling import BaseConsumer

if TYPE_CHECKING:
    from ottla.client.core.keywords import ConsumerKeywords


class Consumer(BaseConsumer[K, V]):
    """Reads records, alone or as a member of a group. Use it with `with`, or call `close`.

    Settings have Kafka's names in a mapping (`{"group.id": "billing"}`) or are keywords (`group_id="billing"`). One
    thread at a time may poll.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        key_deserializer: Deserializer[K] | None = None,
        value_deserializer: Deserializer[V] | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        assignors: Sequence[GroupAssignor] = (),
        **settings: Unpack[ConsumerKeywords],
    ) -> None:
        self._inner = AsyncConsumer(
            config,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            interceptors=interceptors,
            assignors=assignors,
            **settings,
        )
        self._begin()

    # Life

    def close(self, timeout: float | None = 30.0) -> None:
        """Commits if that is automatic, leaves the group, closes the connections. Closing twice is harmless."""
        self._close(timeout)

    # What to read

    def subscribe(
        self, topics: Collection[str] | re.Pattern[str], *, listener: RebalanceListener | None = None
    ) -> None:
        """Reads topics, or all whose names the pattern matches, shared with the other members of the group.

        It replaces an earlier subscription. An empty list is the same as `unsubscribe`.
        """
        self._subscribe(topics, listener)

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Reads these partitions and no others, without sharing them with a group."""
        self._do(lambda: self._inner.assign(partitions))

    @property
    def subscription(self) -> frozenset[str]:
        return self._inner.subscription

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self._inner.assignment

    @property
    def membership(self) -> Membership:
        """This consumer's place in its group, for the `send_offsets` of a transactional producer (KIP-447)."""
        return self._do(lambda: self._inner.membership)

    # Records

    def poll_arrow(
        self, timeout: float | None = 0.0, max_records: int | None = None, columns: Iterable[str] | None = None
    ) -> Any:
        """What was fetched as a pyarrow RecordBatch, decoded whole; one without rows if nothing came in time.

        The columns are key, value, topic, partition, offset, timestamp and timestampType, or those that are asked for,
        in their order, headers too. Positions, commits and rebalances are as with `poll`; deserializers and
        interceptors see no columns.
        """
        return self._poll_arrow(timeout, max_records, columns)

    def to_arrow(
        self, what: Readable, start: Bounds = "earliest", end: Bounds = "latest", columns: Iterable[str] | None = None
    ) -> Any:
        """A topic, or some partitions, as a pyarrow Table: everything from `start` up to and without `end`.

        Each bound is an offset, "earliest", "latest" or a datetime, for all partitions or in a mapping for each. It has
        nothing to do with what this consumer is subscribed to, or with its positions.
        """
        return self._call(self._inner.to_arrow(what, start, end, columns))
