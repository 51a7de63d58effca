"""The frame that Confluent's clients put around a value: a zero, the four bytes of its schema's id, then the data."""

from __future__ import annotations

from typing import Final

import numpy as np

from ottla.records.arrays.varint import Int64s
from ottla.spark.pipeline.formats.avro.lanes import Batch, Lanes

HEAD_SIZE: Final = 5
NO_HEAD: Final = "it does not begin with a zero byte and the four bytes of a schema's id"


def read_heads(batch: Batch) -> Int64s:
    """The ids of the values' schemas; values without a frame are bad."""
    everyone = Lanes(np.arange(len(batch.starts)), batch.starts)
    is_short = batch.ends - batch.starts < HEAD_SIZE
    heads = batch.head(HEAD_SIZE)
    is_wrong = is_short | (heads[:, 0] != 0)
    if is_wrong.any():
        batch.fail(everyone, is_wrong, NO_HEAD)
    ids = heads[:, 1:].astype(np.int64)
    return ids[:, 0] << 24 | ids[:, 1] << 16 | ids[:, 2] << 8 | ids[:, 3]


def frame_head(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big")
