"""Varints of many rows in one array are what single ones are, however even or uneven they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ottla.records.varint import encode_varint

pytest.importorskip("pyarrow")

from ottla.records.arrays.varint import VarintColumn
from ottla.records.columns.varint import join_varints

ROWS = 200
COLUMNS = {
    "short": [1] * ROWS,
    "long": [100_000] * ROWS,
    "rising": list(range(ROWS)),
    "halves": [1] * (ROWS // 2) + [1000] * (ROWS // 2),
    "other halves": [1000] * (ROWS // 2) + [1] * (ROWS // 2),
    "turns": [1, 1000] * (ROWS // 2),
    "other turns": [1000, 1] * (ROWS // 2),
    "negative": [-5] * ROWS,
}


@pytest.mark.parametrize(
    "names",
    [
        ["short"],
        ["long", "negative"],
        ["rising", "short"],
        ["halves", "long"],
        ["halves", "other halves"],
        ["turns", "other turns"],
        ["turns", "halves", "rising"],
    ],
    ids="+".join,
)
@pytest.mark.parametrize("count", [1, 63, 64, ROWS])
@pytest.mark.parametrize("with_room", [False, True])
def test_rows_are_the_varints_one_after_the_other(names: list[str], count: int, with_room: bool) -> None:
    values = [COLUMNS[name][:count] for name in names]
    columns: list[Any] = [0, *(VarintColumn(np.array(column, np.int64)) for column in values)]
    room = np.arange(count, dtype=np.int64) % 3 if with_room else None
    found = join_varints(columns, room).to_pylist()
    expected = [b"\x00" + b"".join(map(encode_varint, row)) for row in zip(*values, strict=True)]
    gaps = [0] * count if room is None else room.tolist()
    assert [row[gap:] for row, gap in zip(found, gaps, strict=True)] == expected
