"""Batches of Avro values into rows: plain values of one schema, or values that begin with the id of their schema.

Lives in Spark's workers. Schemas and readers are kept for as long as the process lives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from ottla.records.arrays.varint import Int64s
from ottla.spark.pipeline.formats.arrow_values import IS_NULL, with_errors
from ottla.spark.pipeline.formats.avro.compiling import arrow_type, compile_reader
from ottla.spark.pipeline.formats.avro.lanes import Batch, Lanes, Reader
from ottla.spark.pipeline.formats.avro.types import AvroSchemaError, Record
from ottla.spark.pipeline.formats.framing import HEAD_SIZE, read_heads


class PlainDecoder:
    """Values without a frame, all written with one schema and read with another, which may be the same."""

    def __init__(self, writer: Record, reader: Record) -> None:
        self._reader = compile_reader(writer, reader)

    def __call__(self, values: Any) -> Any:
        batch = open_batch(values)
        value, lanes = self._reader.read(batch, Lanes(np.arange(len(values)), batch.starts))
        batch.check_ends(lanes)
        return with_errors(value, batch.errors)


class FramedDecoder:
    """Values that name the schema they were written with. `find_schema` gives it, None if there is none of that id, and
    raises AvroSchemaError if it cannot be used; what else it raises is no record's fault."""

    def __init__(self, reader: Record, find_schema: Callable[[int], Record | None]) -> None:
        self._schema = reader
        self._type = arrow_type(reader)
        self._find_schema = find_schema
        self._readers: dict[int, Reader | str] = {}

    def __call__(self, values: Any) -> Any:
        batch = open_batch(values)
        schema_ids = read_heads(batch)
        pieces: list[Any] = []
        order: list[Int64s] = []
        for schema_id in np.unique(schema_ids[~batch.is_bad]).tolist():
            rows = np.flatnonzero((schema_ids == schema_id) & ~batch.is_bad)
            lanes = Lanes(rows, batch.starts[rows] + HEAD_SIZE)
            reader = self._reader_of(schema_id)
            if isinstance(reader, str):
                batch.fail(lanes, np.ones(len(rows), np.bool_), reader)
                continue
            piece, lanes = reader.read(batch, lanes)
            batch.check_ends(lanes)
            pieces.append(piece)
            order.append(rows)
        return with_errors(self._in_order(pieces, order, len(values)), batch.errors)

    def _reader_of(self, schema_id: int) -> Reader | str:
        """A sentence if values of this schema cannot be read."""
        known = self._readers.get(schema_id)
        if known is None:
            try:
                written = self._find_schema(schema_id)
                if written is None:
                    # Not kept: the schema may be there the next time.
                    return f"the schema registry has no Avro schema with the id {schema_id}"
                known = compile_reader(written, self._schema)
            except AvroSchemaError as e:
                known = f"the schema with the id {schema_id} does not suit the one it is read with: {e}"
            self._readers[schema_id] = known
        return known

    def _in_order(self, pieces: list[Any], order: list[Int64s], count: int) -> Any:
        if not pieces:
            return pa.nulls(count, self._type)
        if len(pieces) == 1 and len(pieces[0]) == count:
            return pieces[0]
        places = np.full(count, -1)
        read = np.concatenate(order)
        places[read] = np.arange(len(read))
        return pa.concat_arrays(pieces).take(pa.array(places, mask=places < 0))


def open_batch(values: Any) -> Batch:
    """A value that is null is bad from the start."""
    batch = Batch(values.cast(pa.binary()))
    if values.null_count:
        rows = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))
        batch.ends[rows] = batch.starts[rows]
        batch.is_bad[rows] = True
        batch.errors.update(dict.fromkeys(rows.tolist(), IS_NULL))
    return batch
