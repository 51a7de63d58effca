"""What a task does: reads a range of offsets from one partition, or small ones of several, as Arrow batches.

The client fetches ahead in its own thread while Spark is busy with the batch before. Reading the same range again gives
the same rows, so a task that failed can simply be run again.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from ottla.base.errors import OttlaError
from ottla.base.types import TopicPartition
from ottla.client.errors import OffsetOutOfRangeError
from ottla.spark.connections import consumer_for
from ottla.spark.data_loss import report_loss
from ottla.spark.offsets import OffsetRange
from ottla.spark.options import SourceOptions
from ottla.spark.source_schema import SourceColumns
from ottla.spark.topic_offsets import log_bounds

if TYPE_CHECKING:
    from ottla.spark.connections import BytesConsumer

_FETCH_BYTES = "4194304"
_FETCH_WAIT_MS = "5"
"""What a task reads is there. Only what is fetched beyond it would wait, and hold up the next task's first fetch."""
_POLL_S = 0.1
"""Short, because a range may end with records that nobody is shown, and then nothing comes at all."""
_LOOK_S = 1.0
"""Without progress for as long as this, it is looked at what has become of the log."""
_TOPIC, _PARTITION, _OFFSET = _PLACE = "topic", "partition", "offset"


class RangePartition(InputPartition):
    """Offset ranges as Spark ships them to a task."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        super().__init__(", ".join(str(one.topic_partition) for one in ranges))
        self.ranges = tuple(ranges)


class MissingRecordsError(OttlaError):
    """Records that the broker says it has did not come."""


@dataclass(frozen=True)
class RangeReader:
    """All that tasks need to know, small enough to be sent with each."""

    consumer: Mapping[str, str] = field(repr=False)
    """May hold passwords."""
    columns: SourceColumns
    poll_timeout_ms: int
    fail_on_data_loss: bool

    @classmethod
    def of(cls, options: SourceOptions, columns: SourceColumns) -> RangeReader:
        # Whoever reads a range must be told if it is gone, and not be given another one.
        own = {"auto.offset.reset": "none", "allow.auto.create.topics": "false"}
        settings = {
            "max.partition.fetch.bytes": _FETCH_BYTES,
            "fetch.max.wait.ms": _FETCH_WAIT_MS,
            **options.client,
            **own,
        }
        return cls(settings, columns, options.poll_timeout_ms, options.fail_on_data_loss)

    def read(self, wanted: InputPartition) -> Iterator[Any]:
        # Spark makes up a partition of its own where there are none to read.
        if not isinstance(wanted, RangePartition):
            return
        with consumer_for(self.consumer) as consumer:
            left = wanted.ranges
            if len(left) > 1:
                left = yield from self._read_together(consumer, left)
            for one in left:
                consumer.assign([one.topic_partition])
                consumer.seek(one.topic_partition, one.start_offset)
                yield from self._read_on(consumer, one.topic_partition, one.end_offset)

    def _read_together(
        self, consumer: BytesConsumer, ranges: Sequence[OffsetRange]
    ) -> Generator[Any, None, tuple[OffsetRange, ...]]:
        """One fetch for all. Returns what has not come soon: each of those is read alone, to see what is wrong."""
        consumer.assign([one.topic_partition for one in ranges])
        for one in ranges:
            consumer.seek(one.topic_partition, one.start_offset)
        left = tuple(ranges)
        deadline_s = time.monotonic() + _LOOK_S
        while left and time.monotonic() < deadline_s:
            try:
                rows = consumer.poll_arrow(_POLL_S, columns=(*self.columns.names, *_PLACE))
            except OffsetOutOfRangeError:
                break
            if rows.num_rows:
                yield from self._fit_each(rows, ranges)
            left = tuple(
                one._replace(start_offset=position)
                for one in left
                if (position := consumer.position(one.topic_partition)) < one.end_offset
            )
        return left

    def _read_on(self, consumer: BytesConsumer, topic_partition: TopicPartition, end_offset: int) -> Iterator[Any]:
        position = consumer.position(topic_partition)
        moved_s = looked_s = time.monotonic()
        while position < end_offset:
            try:
                rows = consumer.poll_arrow(_POLL_S, columns=(*self.columns.names, _OFFSET))
            except OffsetOutOfRangeError:
                rows, looked_s = None, 0.0
            if rows is not None and rows.num_rows:
                yield from self._fit(rows, end_offset)
            now_s, reached = time.monotonic(), consumer.position(topic_partition)
            if reached > position:
                position, moved_s, looked_s = reached, now_s, now_s
            elif (now_s - moved_s) * 1000 > self.poll_timeout_ms:
                self._give_up(topic_partition, position, end_offset)
                return
            elif now_s - looked_s > _LOOK_S:
                looked_s = now_s
                left_from = self._left_from(topic_partition, position, end_offset)
                if left_from is None:
                    return
                # Also to where it is already: that ends the error it may have met there.
                consumer.seek(topic_partition, left_from)

    def _left_from(self, topic_partition: TopicPartition, position: int, end_offset: int) -> int | None:
        """Where the rest of the range can be read from, None if it is gone; what is gone is a loss."""
        bounds = log_bounds(self.consumer, topic_partition)
        if bounds is None:
            report_loss([f"{topic_partition} is gone"], fail=self.fail_on_data_loss)
            return None
        begins, ends = bounds
        if begins <= position and end_offset <= ends:
            return position
        held = f"{topic_partition} holds offsets {begins} up to {ends}"
        report_loss([f"{held}, and {position} up to {end_offset} were to be read"], fail=self.fail_on_data_loss)
        return begins if position < begins < min(end_offset, ends) else None

    def _give_up(self, topic_partition: TopicPartition, position: int, end_offset: int) -> None:
        told = f"{topic_partition}: nothing came for {self.poll_timeout_ms} ms at {position}, before {end_offset}"
        if self.fail_on_data_loss:
            raise MissingRecordsError(
                f"{told}; check that its broker is well, set kafkaConsumer.pollTimeoutMs to wait longer, or"
                " failOnDataLoss=false to go on without the rest of this range"
            )
        report_loss([told], fail=False)

    def _fit_each(self, rows: Any, ranges: Sequence[OffsetRange]) -> Iterator[Any]:
        """The rows of the ranges. Those of a partition lie together, in the order of their offsets."""
        ends = {one.topic_partition: one.end_offset for one in ranges}
        places = zip(rows.column(_TOPIC).to_pylist(), rows.column(_PARTITION).to_pylist(), strict=True)
        begun = 0
        for (topic, partition), same in groupby(places):
            count = sum(1 for _ in same)
            yield from self._fit(rows.slice(begun, count), ends[TopicPartition(topic, partition)])
            begun += count

    def _fit(self, rows: Any, end_offset: int) -> Iterator[Any]:
        """The rows of the range in the form Spark asked for."""
        import pyarrow as pa  # not above: it may start a thread, and the process that workers are forked from must not

        offsets = rows.column(_OFFSET)
        if offsets[-1].as_py() >= end_offset:
            rows = rows.slice(0, int(offsets.to_numpy().searchsorted(end_offset)))
            if not rows.num_rows:
                return
        schema = self.columns.arrow_schema
        # Kafka counts milliseconds, Spark microseconds; nothing else needs a conversion.
        arrays = [rows.column(field.name).cast(field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
