"""What the bytes of a record's value mean: formats, as columns of what was read and of what was wrong.

A value is read or it is not: an error is a sentence in a column, and nothing is raised here. Whoever loads a source
decides whether a bad record stops the flow, is left out, or is set aside.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

FORMATS = ("raw", "text", "json", "csv")
FORMATS_WITH_SCHEMA = ("json", "csv")
_CORRUPT = "_ottla_corrupt"


class Decoded(NamedTuple):
    value: Column
    """A struct if the format has a schema; NULL or half filled where there is an error."""
    error: Column
    """A sentence, or NULL."""


def decode(value: Column, format_name: str, schema: StructType | None) -> Decoded:
    """Columns for one format; a format with a schema needs one."""
    if format_name == "raw":
        return Decoded(value, f.lit(None).cast("string"))
    text = value.cast("string")
    not_text = f.when(value.isNull(), f.lit("the value is null")).when(
        ~f.is_valid_utf8(text), f.lit("the value is not UTF-8 text")
    )
    if format_name == "text":
        # A text may be absent: that is how a compacted topic says that a key is gone.
        return Decoded(text, f.when(value.isNotNull(), not_text))
    if schema is None:
        raise ValueError(f"format {format_name} needs a schema")
    return _json(text, not_text, schema) if format_name == "json" else _csv(text, not_text, schema)


def _json(text: Column, not_text: Column, schema: StructType) -> Decoded:
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, "allowSingleQuotes": "false"}
    parsed = f.from_json(text, _with_corrupt(schema), options)
    # Spark's parser stops after the first object; as the only item of an array it has to be the whole text.
    is_alone = f.json_array_length(f.concat(f.lit("["), text, f.lit("]"))) == 1
    is_object = parsed.isNotNull() & parsed[_CORRUPT].isNull() & f.coalesce(is_alone, f.lit(False))
    error = not_text.when(~is_object, f.lit("the value is not a JSON object that fits the schema"))
    return Decoded(_without_corrupt(parsed, schema), _and_required(error, parsed, schema))


def _csv(text: Column, not_text: Column, schema: StructType) -> Decoded:
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = f.from_csv(text, _with_corrupt(schema).simpleString().removeprefix("struct<").removesuffix(">"), options)
    is_line = parsed.isNotNull() & parsed[_CORRUPT].isNull() & (f.length(text) > 0)
    error = not_text.when(~is_line, f.lit("the value is not a line of CSV that fits the schema"))
    return Decoded(_without_corrupt(parsed, schema), _and_required(error, parsed, schema))


def _with_corrupt(schema: StructType) -> StructType:
    # Spark gives NULL for a missing field whatever the schema says; `_and_required` looks after NOT NULL.
    nullable = [StructField(field.name, field.dataType, True, field.metadata) for field in schema.fields]
    return StructType([*nullable, StructField(_CORRUPT, StringType())])


def _without_corrupt(parsed: Column, schema: StructType) -> Column:
    return f.struct(*(parsed[field.name].alias(field.name) for field in schema.fields))


def _and_required(error: Column, parsed: Column, schema: StructType) -> Column:
    for field in schema.fields:
        if not field.nullable:
            error = error.when(parsed[field.name].isNull(), f.lit(f"the column {field.name} is missing"))
    return error


def encode_json(columns: list[str]) -> Column:
    """A JSON object of columns, as text. NULLs are kept: a reader can tell them from columns that are not there."""
    return f.to_json(f.struct(*(f.col(f"`{name}`") for name in columns)), {"ignoreNullFields": "false"})
