"""From what a user hands to `send` to a record in a batch: interceptors, serializers, checks, and the partition."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from ottla.base.errors import InvalidConfigError
from ottla.base.options import MAX_INT, MAX_LONG
from ottla.client.core.metadata import TopicMetadata
from ottla.client.core.producer.accumulator import Accumulator
from ottla.client.core.producer.batch import RECORD_OVERHEAD, Batch, RecordMetadata, headers_size
from ottla.client.core.producer.options import ProducerSettings
from ottla.client.core.producer.partitioners import Partitioner, key_partition
from ottla.client.errors import ClientError, RecordTooLargeError, SerializationError
from ottla.records.batch import HEADER_SIZE
from ottla.records.builder import RecordFields

log = logging.getLogger(__name__)

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
GivenHeaders: TypeAlias = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]


class ProducerRecord(NamedTuple):
    """A record as it was handed to `send`, before it is turned into bytes."""

    topic: str
    value: Any = None
    key: Any = None
    headers: GivenHeaders = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class ProducerInterceptor(Protocol):
    """Sees every record before it is serialized, and every outcome. Both are called in the order of interceptors.

    What an interceptor raises is logged, and keeps no record from being sent (KIP-42).
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record to be sent. It is called in the thread of `send`."""

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: ClientError | None) -> None:
        """What became of a record, also of one that `send` refused. It must be quick: others wait for it."""


Payload: TypeAlias = bytes | bytearray | memoryview
"""What needs no serializer."""

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    KeyT = TypeVar("KeyT", contravariant=True, default=Payload)
    ValueT = TypeVar("ValueT", contravariant=True, default=Payload)
    T_contra = TypeVar("T_contra", contravariant=True)
    T = TypeVar("T")
else:
    # A default says what a `Producer` is in an annotation of a user's; while it runs, nobody asks.
    from typing import TypeVar

    KeyT, ValueT, T_contra, T = map(TypeVar, ("KeyT", "ValueT", "T_contra", "T"))


class TopicSerializer(Protocol[T_contra]):
    def serialize(self, topic: str, value: T_contra, /) -> bytes | None: ...


Serializer: TypeAlias = TopicSerializer[T] | Callable[[T], bytes | None]
"""Turns a key or value into bytes: a function of the object, or an object that also wants to know the topic.

None stays None where the serializer is a function; an object decides for itself.
"""


class PreparedRecord(NamedTuple):
    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int | None
    """If the user has given it one; otherwise it gets that of the moment in which it is added to a batch."""
    size: int


class PreparedValues(NamedTuple):
    topic: str
    values: Sequence[bytes]
    lengths: list[int]
    ends: Sequence[int]
    """The size of all values before each, and of all."""
    wall_ms: int


class RecordIntake:
    def __init__(
        self,
        settings: ProducerSettings,
        accumulator: Accumulator,
        *,
        key_serializer: Serializer[Any] | None = None,
        value_serializer: Serializer[Any] | None = None,
        partitioner: Partitioner | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
    ) -> None:
        self.interceptors = tuple(interceptors)
        self._settings = settings
        self._accumulator = accumulator
        self._serialize_key = None if key_serializer is None else _with_topic(key_serializer)
        self._serialize_value = None if value_serializer is None else _with_topic(value_serializer)
        self._key_waits = getattr(key_serializer, "waits_to_serialize", None)
        self._value_waits = getattr(value_serializer, "waits_to_serialize", None)
        self._partitioner = partitioner
        self._largest = min(settings.max_request_size, settings.buffer_memory)

    @property
    def is_plain(self) -> bool:
        """Whether bytes without a key go to the topic's sticky batch, with nothing else to do."""
        return not (self.interceptors or self._serialize_value or self._serialize_key or self._partitioner)

    def take_any_size(self) -> None:
        """How large a record may be is for its topic to say, not for max.request.size."""
        self._largest = self._settings.buffer_memory

    @property
    def may_wait(self) -> bool:
        """Whether a serializer may have to ask somebody."""
        return self._key_waits is not None or self._value_waits is not None

    def prepare(self, record: ProducerRecord) -> PreparedRecord:
        """The record as bytes; SerializationError or RecordTooLargeError if it cannot be sent."""
        return self.serialize(self.intercept(record))

    def intercept(self, record: ProducerRecord) -> ProducerRecord:
        for interceptor in self.interceptors:
            record = _intercepted(interceptor, record)
        if not isinstance(record.topic, str):
            raise SerializationError(f"the topic must be a name, but was {record.topic!r}")
        return record

    def waits_to_serialize(self, record: ProducerRecord) -> bool:
        """Whether a serializer has to ask somebody for this record, so that it is better called in another thread."""
        for field, waits, given in (("key", self._key_waits, record.key), ("value", self._value_waits, record.value)):
            try:
                if waits is not None and waits(record.topic, given):
                    return True
            except ClientError:
                raise
            except Exception as e:
                raise SerializationError(f"{record.topic}: waits_to_serialize failed for the {field}: {e}") from e
        return False

    def serialize(self, record: ProducerRecord) -> PreparedRecord:
        """An intercepted record as bytes. In any thread."""
        topic = record.topic
        key = _to_bytes(topic, "key", record.key, self._serialize_key)
        value = _to_bytes(topic, "value", record.value, self._serialize_value)
        headers = _checked_headers(topic, record.headers) if record.headers else ()
        timestamp_ms, partition = record.timestamp_ms, record.partition
        if timestamp_ms is not None and (timestamp_ms.__class__ is not int or not 0 <= timestamp_ms <= MAX_LONG):
            raise SerializationError(f"{topic}: the timestamp must be milliseconds, but was {timestamp_ms!r}")
        if partition is not None:
            partition = _checked_partition(topic, partition)
        size = RECORD_OVERHEAD + (len(key) if key is not None else 0) + (len(value) if value is not None else 0)
        if headers:
            size += headers_size(headers)
        self._check_size(topic, size)
        return PreparedRecord(topic, partition, key, value, headers, timestamp_ms, size)

    def refused(self, error: BaseException) -> None:
        """Tells the interceptors of a record that they have seen, and that no batch has taken."""
        if not isinstance(error, ClientError):
            error = ClientError(f"the record was not sent ({type(error).__name__}: {error})")
        for interceptor in self.interceptors:
            try:
                interceptor.on_acknowledgement(None, error)
            except Exception:
                log.exception("an interceptor has failed with what became of a record")

    def _check_size(self, topic: str, size: int) -> None:
        if size + HEADER_SIZE > self._largest:
            name = "max.request.size" if self._largest == self._settings.max_request_size else "buffer.memory"
            raise RecordTooLargeError(
                f"{topic}: a record of {size} bytes is larger than {name} ({self._largest}) allows"
            )

    def prepare_values(self, topic: str, values: list[Any], wall_ms: int) -> PreparedValues | None:
        """Many values at once, if they are bytes and nothing but the sticky batch is to be considered; else None."""
        if not self.is_plain or set(map(type, values)) != {bytes}:
            return None
        distinct = set(map(len, values))
        longest = max(distinct)
        self._check_size(topic, longest + RECORD_OVERHEAD)
        if len(distinct) == 1:
            # Nothing has to be added up, and numbers that are one object are compared in no time later.
            size = longest + RECORD_OVERHEAD
            lengths = [longest] * len(values)
            return PreparedValues(topic, values, lengths, range(0, size * len(values) + 1, size), wall_ms)
        lengths = list(map(len, values))
        ends = list(accumulate(map(RECORD_OVERHEAD.__add__, lengths), initial=0))
        return PreparedValues(topic, values, lengths, ends, wall_ms)

    def append_values(
        self, prepared: PreparedValues, start: int, metadata: TopicMetadata, now_ms: int
    ) -> tuple[Batch, int, int] | None:
        """Adds the values from number `start` on that fit into one batch; None if there is no memory.

        The answer is the batch, the index there of the first of them, and the number of the first left out.
        """
        topic, values, lengths, ends, wall_ms = prepared
        fields: RecordFields = (None, values[start], (), wall_ms)
        size = ends[start + 1] - ends[start]
        count = metadata.partition_count
        batch = self._accumulator.append_sticky(topic, metadata.available, count, fields, size, now_ms)
        if batch is None:
            return None
        first = batch.record_count - 1
        return batch, first, self._accumulator.extend(batch, values, lengths, ends, start + 1)

    def append(self, record: PreparedRecord, metadata: TopicMetadata, now_ms: int, wall_ms: int) -> Batch | None:
        """The batch that took the record as its last one; None if there is no memory."""
        topic, partition, key, value, headers, timestamp_ms, size = record
        fields: RecordFields = (key, value, headers, wall_ms if timestamp_ms is None else timestamp_ms)
        count = metadata.partition_count
        if partition is None:
            if self._partitioner is not None:
                chosen = self._partitioner(topic, key, value, count, metadata.available)
                partition = _checked_partition(topic, chosen)
            elif key is not None and not self._settings.ignore_keys:
                partition = key_partition(key, count)
            else:
                batch = self._accumulator.append_sticky(topic, metadata.available, count, fields, size, now_ms)
                if batch is not None and timestamp_ms is None:
                    self._accumulator.open_lane(topic, wall_ms, now_ms)
                return batch
        if partition not in metadata.partitions:
            raise ClientError(f"topic {topic} has the partitions 0 to {count - 1}, and no partition {partition}")
        return self._accumulator.append(topic, partition, fields, size, now_ms)


def check_parts(
    key_serializer: object, value_serializer: object, partitioner: object, interceptors: object
) -> Sequence[ProducerInterceptor]:
    """InvalidConfigError if one of them cannot be what it shall be: said before anything is started."""
    for name, serializer in (("key_serializer", key_serializer), ("value_serializer", value_serializer)):
        if not (serializer is None or callable(serializer) or callable(getattr(serializer, "serialize", None))):
            raise InvalidConfigError(
                name, f"{name} must be a function, or have a method serialize(topic, value), but was {serializer!r}"
            )
        if isinstance(serializer, type) and hasattr(serializer, "serialize"):
            raise InvalidConfigError(name, f"{name} must be an object of {serializer!r}, not the class itself")
    if not (partitioner is None or callable(partitioner)):
        raise InvalidConfigError("partitioner", f"partitioner must be a function, but was {partitioner!r}")
    if not isinstance(interceptors, Iterable):
        raise InvalidConfigError("interceptors", f"interceptors must be a list of them, but was {interceptors!r}")
    chain = tuple(interceptors)
    for interceptor in chain:
        for method in ("on_send", "on_acknowledgement"):
            if not callable(getattr(interceptor, method, None)):
                raise InvalidConfigError("interceptors", f"the interceptor {interceptor!r} has no method {method}")
    return chain


def listed(values: Iterable[Any]) -> list[Any]:
    """The values as they are now: a list that its owner changes later changes nothing."""
    if not isinstance(values, Iterable):
        raise SerializationError(f"send_many takes several values, but was given {values!r}")
    return list(values)


def _intercepted(interceptor: ProducerInterceptor, record: ProducerRecord) -> ProducerRecord:
    try:
        changed: object = interceptor.on_send(record)
    except Exception:
        log.exception("an interceptor has failed; the record goes on as it was before")
        return record
    if not isinstance(changed, ProducerRecord):
        log.error("the interceptor %r gave %r for a record, which goes on as it was before", interceptor, changed)
        return record
    return changed


def _with_topic(serializer: Serializer[Any]) -> Callable[[str, Any], bytes | None]:
    method = getattr(serializer, "serialize", None)
    if method is not None:
        found: Callable[[str, Any], bytes | None] = method
        return found
    function: Callable[[Any], bytes | None] = serializer  # type: ignore[assignment]
    return lambda _, value: None if value is None else function(value)


def _to_bytes(topic: str, field: str, value: Any, serialize: Callable[[str, Any], bytes | None] | None) -> bytes | None:
    if serialize is not None:
        try:
            value = serialize(topic, value)
        except ClientError:
            raise
        except Exception as e:
            # The serializer is the user's: whatever it raises means that this record cannot be sent.
            raise SerializationError(f"{topic}: the {field} could not be serialized: {e}") from e
    if value is None or value.__class__ is bytes:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    kind = type(value).__name__
    if serialize is not None:
        raise SerializationError(f"{topic}: the {field}_serializer must give bytes or None, but gave {kind}")
    raise SerializationError(
        f"{topic}: the {field} must be bytes or None, but was {kind}; give the producer a {field}_serializer"
    )


def _checked_partition(topic: str, partition: int) -> int:
    try:
        number = index(partition)
    except TypeError:
        raise SerializationError(f"{topic}: the partition must be a number, but was {partition!r}") from None
    if not 0 <= number <= MAX_INT:
        raise SerializationError(f"{topic}: the partition must be from 0 to {MAX_INT}, but was {number}")
    return number


def _checked_headers(topic: str, given: GivenHeaders) -> Headers:
    try:
        headers: list[Any] = list(given.items() if isinstance(given, Mapping) else given)
    except TypeError:
        raise SerializationError(f"{topic}: headers must be pairs of names and bytes, but were {given!r}") from None
    for header in headers:
        match header:
            case (str(name), bytes() | None):
                if name.isascii() or _has_utf8(name):
                    continue
                raise SerializationError(f"{topic}: the name of a header has no UTF-8 form: {name!r}")
        raise SerializationError(f"{topic}: a header must be a name and bytes or None, but was {header!r}")
    return headers


def _has_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
