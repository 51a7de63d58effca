"""Formats that Python reads: a function of Arrow arrays gives what was read of a batch of records, and what was wrong.

Spark calls the function in its Python workers (an Arrow UDF). It must not raise for what is wrong with a record: that
is the record's error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, StringType, StructField, StructType

from ottla.spark.pipeline.formats.value_format import Decoded, with_decoded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

IS_NULL = "the value is null"
_READ = "_ottla_read"


def decode_with(
    records: DataFrame, function: Callable[..., Any], columns: StructType, inputs: Sequence[str] = ("value",)
) -> DataFrame:
    """The records, decoded by a function that gets the arrays of the inputs and gives one as `with_errors` makes."""
    both = StructType([StructField("value", columns), StructField("error", StringType())])
    # To Spark a function that may give other results each time is one that it must not call twice for a row.
    read = array_function(function, both).asNondeterministic()(*inputs)
    decoded = Decoded(f.col(f"{_READ}.value"), f.col(f"{_READ}.error"))
    return with_decoded(records.select("*", read.alias(_READ)), decoded).drop(_READ)


def array_function(function: Callable[..., Any], returns: DataType) -> Any:
    """A function of Arrow arrays, as one of columns."""

    # Spark learns by the hints which kind of function it is.
    def call(*arrays: pa.Array) -> pa.Array:
        return function(*arrays)

    make: Any = arrow_udf
    return make(call, returns)


def with_errors(value: Any, errors: Mapping[int, str]) -> Any:
    """What was read (a struct) and what was wrong, by row, as one array; of a bad row nothing was read."""
    count = len(value)
    sentences = [None] * count if not errors else [errors.get(row) for row in range(count)]
    error = pa.array(sentences, pa.string())
    if errors:
        value = pa.StructArray.from_arrays(value.flatten(), fields=list(value.type), mask=error.is_valid())
    return pa.StructArray.from_arrays([value, error], names=["value", "error"])


def arrow_struct(columns: DataType) -> Any:
    """The type that Spark takes for a struct of these columns."""
    return to_arrow_type(columns, timezone="UTC")


def converted_rows(rows: Sequence[Any], type_: Any, errors: dict[int, str]) -> Any:
    """Python values as an array. Those that are not of the type become null, with an error; this is found out by
    halves, since Arrow does not tell which it was."""

    def convert(first: int, last: int) -> Any:
        try:
            return pa.array(rows[first:last], type_)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as e:
            if last - first == 1:
                errors[first] = f"it does not fit its columns: {e}"
                return pa.nulls(1, type_)
            middle = (first + last) // 2
            return pa.concat_arrays([convert(first, middle), convert(middle, last)])

    return convert(0, len(rows))
