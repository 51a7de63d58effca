"""The bytes of one partition from one fetch reply, decoded batch by batch as the application asks for records.

Hides what applications must not see: control records, records before the position, and with read_committed the
records of aborted transactions. A damaged batch is an error that names it, each time it is reached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, cast

from ottla.base.errors import CorruptBatchError
from ottla.base.types import ReadBuffer, TopicPartition
from ottla.client.core.consumer.arguments import check_deserializers
from ottla.client.core.consumer.record import AnyRecord, ConsumerRecord, make_record_class
from ottla.client.errors import ClientError, CorruptRecordError, DeserializationError
from ottla.records.batch import (
    CONTROL_BIT,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    crc_is_valid,
    iter_ordered_headers,
)
from ottla.records.control import ControlType, parse_control_key
from ottla.records.reader import read_records, read_records_as

_KEY, _VALUE = ConsumerRecord._fields.index("key"), ConsumerRecord._fields.index("value")


class RecordClasses:
    """The record classes of one partition, made when first met."""

    def __init__(self, topic_partition: TopicPartition) -> None:
        self._topic_partition = topic_partition
        self._classes: dict[tuple[int, int], type[AnyRecord]] = {}

    def of(self, header: BatchHeader) -> type[AnyRecord]:
        key = (header.attributes & LOG_APPEND_TIME_BIT, header.partition_leader_epoch)
        found = self._classes.get(key)
        if found is None:
            epoch = header.partition_leader_epoch
            found = self._classes[key] = make_record_class(
                *self._topic_partition, header.timestamp_type, epoch if epoch >= 0 else None
            )
        return found


def _and_then_raise(
    batches: list[tuple[int, BatchHeader]], damage: CorruptBatchError | None
) -> Iterator[tuple[int, BatchHeader]]:
    # Not a method: what it belonged to would keep itself alive by it, and its memory would be long in coming back.
    yield from batches
    if damage is not None:
        raise damage.with_traceback(None)


class FetchedData:
    def __init__(
        self,
        topic_partition: TopicPartition,
        records: ReadBuffer,
        *,
        start_offset: int,
        aborted: Iterable[tuple[int, int]] | None,
        check_crcs: bool,
        classes: RecordClasses,
        arrival: int = 0,
    ) -> None:
        """`aborted` holds (producer id, first offset) and is None unless the isolation level is read_committed."""
        self.topic_partition = topic_partition
        self.arrival = arrival
        """Its number in the order in which answers came."""
        self.aborted = None if aborted is None else tuple(aborted)
        self.leftover: object = None
        """What reading by the column has decoded and not given yet."""
        self.data = memoryview(records)
        self.batches: list[tuple[int, BatchHeader]] = []
        """Those that are there in full, with their positions, up to the first that makes no sense."""
        self._damage = self._find_batches()
        self._start_offset = start_offset
        self._position = start_offset
        self.check_crcs = check_crcs
        self._classes = classes
        self._upcoming = (
            None if self.aborted is None else sorted(self.aborted, key=lambda entry: entry[1], reverse=True)
        )
        self._aborted_producers: set[int] = set()
        self._headers = self.headers()
        self._put_back: tuple[BatchHeader, list[AnyRecord]] | None = None
        self._failure: CorruptRecordError | None = None

    @property
    def byte_count(self) -> int:
        return len(self.data)

    def _find_batches(self) -> CorruptBatchError | None:
        try:
            for batch in iter_ordered_headers(self.data):
                self.batches.append(batch)
        except CorruptBatchError as e:
            return e.with_traceback(None)
        return None

    def headers(self) -> Iterator[tuple[int, BatchHeader]]:
        """All batches, and after them the error of what makes no sense, if there is any."""
        return _and_then_raise(self.batches, self._damage)

    def from_its_start(self) -> FetchedData:
        """The same bytes, not read yet."""
        return FetchedData(
            self.topic_partition,
            self.data,
            start_offset=self._start_offset,
            aborted=self.aborted,
            check_crcs=self.check_crcs,
            classes=self._classes,
        )

    @property
    def next_offset(self) -> int:
        """Where to go on after what has been given so far, hidden records included."""
        return self._position

    def next_batch(self) -> tuple[BatchHeader, list[AnyRecord]] | None:
        """The visible records of the next batch, possibly none; None after the last one."""
        if self._put_back is not None:
            found_before, self._put_back = self._put_back, None
            return found_before
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        try:
            found = next(self._headers, None)
        except CorruptBatchError as e:
            raise self._fail(e.message, self._position, self._position + 1) from e
        if found is None:
            return None
        position, header = found
        batch = self.data[position : position + header.size]
        try:
            records = self._visible(batch, header)
        except CorruptBatchError as e:
            raise self._fail(e.message, header.base_offset, max(header.next_offset, self._position + 1)) from e
        self._position = max(self._position, header.next_offset)
        return header, records

    def put_back(self, header: BatchHeader, records: list[AnyRecord]) -> None:
        """The last records of the batch that was given last cannot be used yet: they are given again."""
        self._put_back = header, records

    def _fail(self, reason: str, offset: int, next_offset: int) -> CorruptRecordError:
        self._failure = CorruptRecordError(
            reason, topic_partition=self.topic_partition, offset=offset, next_offset=next_offset
        )
        return self._failure

    def _visible(self, batch: memoryview, header: BatchHeader) -> list[AnyRecord]:
        # Nobody reads what a broker sends from before the asked offset, so nothing is wrong with it.
        is_wanted = header.last_offset >= self._start_offset
        if is_wanted and self.check_crcs and not crc_is_valid(batch, header):
            raise CorruptBatchError("its checksum is wrong")
        if header.attributes & CONTROL_BIT:
            if self._upcoming is not None:
                self._end_transaction(batch, header)
            return []
        if not is_wanted:
            return []
        if self._upcoming is not None and header.attributes & TRANSACTIONAL_BIT and self._is_aborted(header):
            return []
        records = read_records_as(self._classes.of(header), batch, header)
        # A batch is sent whole, also if only its end was asked for.
        if header.base_offset < self._start_offset:
            return [record for record in records if record.offset >= self._start_offset]
        return records

    def _is_aborted(self, header: BatchHeader) -> bool:
        self._begin_aborted(header.last_offset)
        return header.producer_id in self._aborted_producers

    def _begin_aborted(self, last_offset: int) -> None:
        upcoming = self._upcoming
        assert upcoming is not None
        while upcoming and upcoming[-1][1] <= last_offset:
            self._aborted_producers.add(upcoming.pop()[0])

    def _end_transaction(self, batch: memoryview, header: BatchHeader) -> None:
        self._begin_aborted(header.last_offset)
        if header.producer_id not in self._aborted_producers:
            return
        records = read_records(batch, header)
        if records and parse_control_key(records[0].key) is ControlType.ABORT:
            self._aborted_producers.discard(header.producer_id)


class AwaitedRecord:
    """A record whose deserializer has to ask somebody first, which is for a thread that may wait to call."""

    def __init__(self, record: AnyRecord, convert: Callable[[AnyRecord], AnyRecord]) -> None:
        self.record = record
        self.is_begun = False
        self.is_done = False
        self._convert = convert
        self._converted: AnyRecord | None = None
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self._converted = self._convert(self.record)
        except Exception as e:
            self._error = e
        finally:
            self.is_done = True

    def result(self) -> AnyRecord:
        if self._error is not None:
            raise self._error
        assert self._converted is not None
        return self._converted


class Converters:
    """Deserializers applied to the records of a topic, in one pass over each batch."""

    def __init__(self, key: Any, value: Any) -> None:
        """Each is None, a function of the bytes, or an object with `deserialize(topic, data)`."""
        check_deserializers(key, value)
        self.awaited: AwaitedRecord | None = None
        """The one that is waited for, if any: others that need it wait for their turn."""
        self._key = key
        self._value = value
        self._waits = tuple(
            (field, waits)
            for field, deserializer in ((_KEY, key), (_VALUE, value))
            if (waits := getattr(deserializer, "waits_to_deserialize", None)) is not None
        )

    def convert(
        self, topic: str, records: list[AnyRecord]
    ) -> tuple[list[AnyRecord], ClientError | AwaitedRecord | None]:
        """The records up to the first that cannot be converted, and why that one cannot be.

        It is a DeserializationError, unless the deserializer says that it may succeed later, or has to wait.
        """
        if self._key is None and self._value is None:
            return records, None
        key, value = _reader_of(self._key, topic), _reader_of(self._value, topic)
        waits = self._waits
        new_tuple = tuple.__new__
        converted: list[AnyRecord] = []
        for record in records:
            offset, timestamp, key_bytes, value_bytes, headers = record
            try:
                if waits and (awaited := self._awaited_for(topic, record)) is not None:
                    if awaited.record is not record or not awaited.is_done:
                        return converted, awaited
                    self.awaited = None
                    converted.append(awaited.result())
                    continue
                fields = (offset, timestamp, key(key_bytes), value(value_bytes), headers)
            except Exception as e:
                return converted, _reason_against(record, e)
            converted.append(new_tuple(type(record), fields))
        return converted, None

    def _awaited_for(self, topic: str, record: AnyRecord) -> AwaitedRecord | None:
        """What has to be done before this record can be converted; None if nothing has to."""
        awaited = self.awaited
        if awaited is not None and awaited.record is record:
            return awaited
        for field, waits in self._waits:
            if waits(topic, record[field]):
                if awaited is None or awaited.is_done:
                    awaited = self.awaited = AwaitedRecord(record, partial(self._convert_one, topic))
                return awaited
        return None

    def _convert_one(self, topic: str, record: AnyRecord) -> AnyRecord:
        key, value = _reader_of(self._key, topic), _reader_of(self._value, topic)
        return record._replace(key=key(record.key), value=value(record.value))


def _reader_of(deserializer: Any, topic: str) -> Callable[[bytes | None], Any]:
    if deserializer is None:
        return _as_it_is
    if hasattr(deserializer, "deserialize"):
        return partial(deserializer.deserialize, topic)
    return cast("Callable[[bytes | None], Any]", deserializer)


def _as_it_is(data: bytes | None) -> bytes | None:
    return data


def _reason_against(record: AnyRecord, reason: Exception) -> ClientError:
    if isinstance(reason, ClientError) and reason.retriable:
        return reason
    error = DeserializationError(
        f"the record at offset {record.offset} cannot be deserialized ({reason});"
        f" seek to {record.offset + 1} to pass over it",
        topic_partition=record.topic_partition,
        offset=record.offset,
    )
    error.__cause__ = reason
    return error
