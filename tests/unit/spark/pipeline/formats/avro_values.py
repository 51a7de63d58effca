"""Avro values written by fastavro, and read by ours."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa

from ottla.spark.pipeline.formats.avro.decoder import PlainDecoder
from ottla.spark.pipeline.formats.avro.types import parse_record


def written(schema: Any, rows: list[Any]) -> list[bytes]:
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    found = []
    for row in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, row)
        found.append(out.getvalue())
    return found


def decoded(values: list[bytes | None], writer: Any, reader: Any = None) -> list[tuple[Any, str | None]]:
    """For each value what was read and what was wrong."""
    parsed = parse_record(json.dumps(writer))
    decode = PlainDecoder(parsed, parsed if reader is None else parse_record(json.dumps(reader)))
    # As a slice: arrays do not always begin where their buffers do.
    found = decode(pa.array([b"another", *values, b"and another"], pa.binary()).slice(1, len(values)))
    found.validate(full=True)
    return [(row["value"], row["error"]) for row in found.to_pylist()]
