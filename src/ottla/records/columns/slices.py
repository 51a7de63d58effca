"""Many slices of one buffer as an Arrow array, copied by Arrow in one go."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ottla.base.types import ReadBuffer
from ottla.records.arrays.varint import Int64s
from ottla.records.columns.varint import binary_array


def slices(buf: ReadBuffer, starts: Int64s, lengths: Int64s) -> Any:
    """The slices `buf[start:start + length]`, null where the length is negative. Each must start after the one before.

    One array over the whole buffer has the slices as its even rows and what lies between them as its odd rows; taking
    the even ones makes Arrow do the copying.
    """
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    absent = lengths < 0
    has_nulls = bool(absent.any())
    if has_nulls and absent.all():
        return pa.nulls(count, pa.binary())
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2] = starts
    offsets[1::2] = starts + (np.maximum(lengths, 0) if has_nulls else lengths)
    rows = pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=absent if has_nulls else None)
    return binary_array(offsets, buf).take(rows)
