"""The sink of a mirror: writes copies as the exactly-once sink does, and in the same transactions the offset map."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ottla.base.types import TopicPartition
from ottla.client.core.producer.batch import UNKNOWN_OFFSET
from ottla.client.core.producer.encoded_batch import SentRows
from ottla.client.sync import Producer
from ottla.spark.mirror.offset_map import Run, encode_key, encode_value, slot_of, thin_out
from ottla.spark.mirror.settings import TopicNames
from ottla.spark.sink import TransactionalStreamWriter
from ottla.spark.sink_options import SinkOptions
from ottla.spark.sink_rows import Rows


class MirrorWriter(TransactionalStreamWriter):
    def __init__(self, options: SinkOptions, names: TopicNames, map_topic: str) -> None:
        super().__init__(options)
        self._names = names
        self._map_topic = map_topic

    def _rows(self, batches: Iterable[Any]) -> Rows:
        return MirroredRows(batches, self._names, self._map_topic)


class MirroredRows(Rows):
    """Copies of one partition, in its order: a task of a mirror reads one range of offsets.

    Rows have, besides what becomes of a record, a column `offset`: where the original is.
    """

    def __init__(self, batches: Iterable[Any], names: TopicNames, map_topic: str) -> None:
        super().__init__(batches, None)
        self._names = names
        self._map_topic = map_topic
        self._target: TopicPartition | None = None
        self._first_offset = self._end_offset = 0
        self._runs: list[Run] = []

    def send(self, producer: Producer) -> int:
        count = super().send(producer)
        if self._target is not None and self._runs:
            source = TopicPartition(self._names.on_source(self._target.topic), self._target.partition)
            key = encode_key(source, slot_of(self._first_offset, self._end_offset))
            producer.send(self._map_topic, encode_value(self._target, thin_out(self._runs)), key=key).result()
        return count

    def _note(self, batch: Any) -> Any:
        """The source offsets of rows that are on their way."""
        offsets = batch.column("offset").to_numpy()
        if self._target is None:
            self._target = TopicPartition(batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py())
            self._first_offset = int(offsets[0])
        self._end_offset = int(offsets[-1]) + 1
        return offsets

    def _stored(self, noted: Any, sent: dict[TopicPartition, SentRows]) -> None:
        (rows,) = sent.values()
        # After a lost reply it may not be known where some of them are. The map is true without them, only less exact.
        if rows.last_offset - rows.first_offset + 1 == rows.record_count and rows.first_offset != UNKNOWN_OFFSET:
            self._runs += _runs_of(noted, rows.first_offset)


def _runs_of(source_offsets: Any, target_offset: int) -> Iterator[Run]:
    """The runs of rows that lie one behind the other on the target; on the source there may be gaps."""
    import numpy as np  # as with pyarrow, tasks alone load it

    starts = np.flatnonzero(np.diff(source_offsets, prepend=source_offsets[0] - 2) != 1)
    ends = np.append(starts[1:], len(source_offsets))
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        yield Run(int(source_offsets[start]), target_offset + start, end - start)
