"""The code of docs/connect.md does what the page says."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import blocks
from tests.waiting import repeat_until

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def test_a_query_of_ones_own_into_a_database(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = blocks("docs/connect.md")
    monkeypatch.chdir(tmp_path)
    # Spark's own directory is that of the whole session, so the checkpoint has to be named in full.
    code = block.code.replace('"checkpoints/', f'"{tmp_path}/checkpoints/')
    frame = spark.readStream.format("rate").option("rowsPerSecond", 100).load().selectExpr("value AS id", "timestamp")
    exec(compile(code, str(block), "exec"), {"frame": frame})
    (query,) = spark.streams.active
    try:
        repeat_until(lambda: query.exception() is not None or _count(tmp_path / "orders.db") > 0)
        assert query.exception() is None
    finally:
        query.stop()


def _count(path: Path) -> int:
    if not path.exists():
        return 0
    with closing(sqlite3.connect(path)) as database:
        tables = database.execute("SELECT count(*) FROM sqlite_master WHERE name = 'orders'").fetchone()[0]
        return int(database.execute("SELECT count(*) FROM orders").fetchone()[0]) if tables else 0
