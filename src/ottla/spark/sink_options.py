"""What a sink is asked to do: its options and the columns of its rows, both checked before anything is written.

Columns are those of Spark's own Kafka sink, and `timestamp` besides. Makes no connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.base.errors import InvalidConfigError, OttlaError
from ottla.base.options import OneOf, Option, OptionSet, Type
from ottla.client.core.admin.options import ADMIN_OPTIONS
from ottla.client.core.producer.options import ProducerSettings
from ottla.spark.options import CLIENT_PREFIX, canonical_names, client_properties

DEFAULT_SINK_ID = "ottla-sink"
DEFAULT_TRANSACTION_TIMEOUT_MS = 600_000
"""A transaction is open until the slowest task of its micro-batch is done: the producer's own minute is too short."""


class SinkSchemaError(OttlaError):
    """Rows that have not the columns a sink can write; the message says which one is wrong, and how."""


class Delivery(Enum):
    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


_SPARK_KEEPS_IT = "Spark itself uses it"

SINK_OPTIONS = OptionSet(
    "sink",
    (
        Option("topic", Type.STRING, None, "The topic of all rows, whatever a column topic says."),
        Option(
            "deliveryGuarantee",
            Type.STRING,
            None,
            "Whether rows are written by transactions: exactly-once (streams, if nothing is said) or at-least-once.",
            OneOf(*(delivery.value for delivery in Delivery)),
        ),
        Option("sinkId", Type.STRING, DEFAULT_SINK_ID, "What transactional ids and their groups begin with."),
        Option("checkpointLocation", Type.STRING, None, "Where Spark keeps the checkpoint: it names the query."),
        Option("path", Type.STRING, None, "", no_effect=_SPARK_KEEPS_IT),
        Option("queryName", Type.STRING, None, "", no_effect=_SPARK_KEEPS_IT),
    ),
)

_NOT_TO_SET = {
    "transactional.id": "the sink makes one for each task; sinkId says what they begin with",
    "key.serializer": "keys are written as they are; use Spark's functions to turn them into text or bytes",
    "value.serializer": "values are written as they are; use Spark's functions to turn them into text or bytes",
    "interceptor.classes": "interceptors do not see the sink's records",
}


@dataclass(frozen=True)
class SinkOptions:
    """`producer` and `admin` are the settings of the clients, by Kafka's names."""

    topic: str | None
    delivery: Delivery
    sink_id: str
    names_sink: bool
    """Whether `sink_id` was chosen by the user."""
    producer: Mapping[str, str]
    admin: Mapping[str, str]
    checkpoint: str | None

    @classmethod
    def parse(cls, options: Mapping[str, str], schema: StructType, *, default: Delivery) -> SinkOptions:
        """InvalidConfigError or SinkSchemaError if there is anything to object to."""
        values = SINK_OPTIONS.parse(canonical_names(options, SINK_OPTIONS))
        delivery = Delivery(values.optional_text("deliveryGuarantee") or default.value)
        properties = client_properties(options)
        for name, instead in _NOT_TO_SET.items():
            if name in properties:
                raise InvalidConfigError(CLIENT_PREFIX + name, f"{CLIENT_PREFIX}{name} cannot be set: {instead}")
        sink_id = values.text("sinkId").strip()
        if not sink_id:
            raise InvalidConfigError("sinkId", "sinkId must not be empty")
        admin = {name: text for name, text in properties.items() if name in ADMIN_OPTIONS}
        producer = {name: text for name, text in properties.items() if name != "default.api.timeout.ms"}
        if delivery is Delivery.EXACTLY_ONCE:
            producer.setdefault("transaction.timeout.ms", str(DEFAULT_TRANSACTION_TIMEOUT_MS))
        ProducerSettings.parse(
            {**producer, "transactional.id": sink_id} if delivery is Delivery.EXACTLY_ONCE else producer
        )
        parsed = cls(
            values.optional_text("topic"),
            delivery,
            sink_id,
            "sinkId" in values.given,
            producer,
            admin,
            values.optional_text("checkpointLocation"),
        )
        check_schema(schema, has_topic_option=parsed.topic is not None)
        return parsed


def check_schema(schema: StructType, *, has_topic_option: bool) -> None:
    """The rules of Spark's Kafka sink. Other columns than its own are left alone there, and here."""
    fields = {field.name: field for field in schema.fields}
    if not has_topic_option and "topic" not in fields:
        raise SinkSchemaError(
            "there is neither an option topic nor a column topic: set the option, or add a column with the topic of "
            "each row"
        )
    if "value" not in fields:
        found = ", ".join(fields) or "none"
        raise SinkSchemaError(f"the required column value is missing; the rows have: {found}")
    for name, (is_right, wanted) in _COLUMNS.items():
        field = fields.get(name)
        if field is not None and not is_right(field.dataType):
            raise SinkSchemaError(
                f"the column {name} must be {wanted}, but is {field.dataType.simpleString()}{_advice(name, field)}"
            )


def _advice(name: str, field: StructField) -> str:
    if name in ("key", "value") and isinstance(field.dataType, (StructType, ArrayType)):
        return f": write to_json({name}) AS {name}"
    if name in ("topic", "key", "value"):
        return f": write CAST({name} AS STRING)"
    return ""


def _is_text_or_bytes(kind: DataType) -> bool:
    return isinstance(kind, (StringType, BinaryType))


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    entries = [(entry.name, entry.dataType) for entry in kind.elementType.fields]
    return entries == [("key", StringType()), ("value", BinaryType())]


_COLUMNS: dict[str, tuple[Callable[[DataType], bool], str]] = {
    "topic": (lambda kind: isinstance(kind, StringType), "a string"),
    "key": (_is_text_or_bytes, "a string or binary"),
    "value": (_is_text_or_bytes, "a string or binary"),
    "headers": (_is_headers, "an array<struct<key:string,value:binary>>"),
    "partition": (lambda kind: isinstance(kind, IntegerType), "an int"),
    "timestamp": (lambda kind: isinstance(kind, TimestampType), "a timestamp"),
}
