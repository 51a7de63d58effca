"""Values that a function of the pipeline's author decodes, a batch at a time.

The function asks by the names of its parameters for columns of the records, as Arrow arrays, and gives the declared
columns. What it finds wrong with a record it says in a column `_error`; if it raises, the batch is cut in halves to
find the records it raises for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from ottla.spark.pipeline.formats.arrow_values import arrow_struct, decode_with, with_errors
from ottla.spark.pipeline.formats.columns_schema import ColumnsSchema
from ottla.spark.pipeline.functions import FUNCTION_PATH, load_function
from ottla.spark.pipeline.parts import Finding
from ottla.spark.pipeline.problems import SpecError
from ottla.spark.pipeline.section import Section

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ERROR = "_error"
_RECORD = ("value", "key", "headers", "topic", "partition", "offset", "timestamp")


class DecoderError(Exception):
    """A decoder that does not keep to its form: no fault of a record."""


class PythonFormat:
    has_columns: ClassVar[bool] = True

    def __init__(self, section: Section) -> None:
        self._section = section
        self._schema = ColumnsSchema.from_section(section)
        self._path = section.take("decoder", str)
        if not FUNCTION_PATH.fullmatch(self._path):
            section.fail("decoder", f"{self._path!r} names no function; write 'module:function' or 'file.py:function'")

    @classmethod
    def from_section(cls, section: Section) -> Self:
        return cls(section)

    @property
    def inputs(self) -> tuple[str, ...]:
        return self._inputs(self._function())

    def check(self) -> Sequence[Finding]:
        try:
            self._inputs(self._function())
        except SpecError as e:
            return e.problems
        return []

    def decode(self, records: DataFrame) -> DataFrame:
        function = self._function()
        columns = self._schema.parse()
        decode = BatchDecoder(function, self._inputs(function), columns)
        return decode_with(records, lambda *arrays: decode(arrays), columns, decode.inputs)

    def _function(self) -> Callable[..., Any]:
        return load_function(self._section, "decoder", self._path)

    def _inputs(self, function: Callable[..., Any]) -> tuple[str, ...]:
        parameters = inspect.signature(function).parameters.values()
        names = tuple(each.name for each in parameters if each.default is each.empty)
        unknown = [name for name in names if name not in _RECORD]
        if unknown or not names:
            asked = f"asks for {unknown[0]!r}" if unknown else "asks for nothing"
            self._section.fail("decoder", f"its function {asked}; a record has {', '.join(_RECORD)}")
        return names


class BatchDecoder:
    def __init__(self, function: Callable[..., Any], inputs: tuple[str, ...], columns: StructType) -> None:
        self._function = function
        self.inputs = inputs
        self._fields = list(arrow_struct(columns))
        self._required = [field.name for field in columns.fields if not field.nullable]

    def __call__(self, arrays: Sequence[Any]) -> Any:
        return self._decoded(dict(zip(self.inputs, arrays, strict=True)), len(arrays[0]))

    def _decoded(self, arrays: Mapping[str, Any], count: int) -> Any:
        try:
            return self._checked(self._function(**arrays), count)
        except (DecoderError, OSError):
            # What the function needs is away, or it is wrong itself: no record is to blame.
            raise
        except Exception as e:  # a user's function may raise anything
            if count == 1:
                sentence = f"the decoder failed: {type(e).__name__}: {e}"
                return with_errors(pa.nulls(1, pa.struct(self._fields)), {0: sentence})
        middle = count // 2
        return pa.concat_arrays(
            [
                self._decoded({name: array.slice(0, middle) for name, array in arrays.items()}, middle),
                self._decoded({name: array.slice(middle) for name, array in arrays.items()}, count - middle),
            ]
        )

    def _checked(self, given: Any, count: int) -> Any:
        table = pa.table(given) if isinstance(given, Mapping) else given
        if not isinstance(table, pa.Table | pa.RecordBatch):
            raise DecoderError(f"the decoder gave {type(given).__name__}; it has to give a table or a dict of arrays")
        if table.num_rows != count:
            raise DecoderError(f"the decoder gave {table.num_rows} rows for {count} records")
        missing = [field.name for field in self._fields if field.name not in table.column_names]
        if missing:
            raise DecoderError(f"the decoder gave no column {missing[0]!r}, which the schema has")
        errors = self._errors(table, count)
        columns = [_one_array(table.column(field.name)).cast(field.type) for field in self._fields]
        for name in self._required:
            column = _one_array(table.column(name))
            for row in pc.indices_nonzero(column.is_null()).to_pylist() if column.null_count else ():
                errors.setdefault(row, f"the column {name} is missing")
        return with_errors(pa.StructArray.from_arrays(columns, fields=self._fields), errors)

    def _errors(self, table: Any, count: int) -> dict[int, str]:
        if _ERROR not in table.column_names:
            return {}
        told = table.column(_ERROR).cast(pa.string()).to_pylist()
        return {row: sentence for row, sentence in enumerate(told) if sentence is not None}


def _one_array(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
