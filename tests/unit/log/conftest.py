"""Logs in a temporary directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.log.config import LogConfig
from ottla.log.partition_log import PartitionLog
from tests.unit.log.samples import NOW_MS, TOPIC_ID, TP, MakeLog


@pytest.fixture
def make_log(tmp_path: Path) -> MakeLog:
    made = 0

    def make(**settings: Any) -> PartitionLog:
        nonlocal made
        made += 1
        settings.setdefault("segment_index_bytes", 4096)
        return PartitionLog.create(tmp_path / f"{made}" / str(TP), TP, TOPIC_ID, LogConfig(**settings), now_ms=NOW_MS)

    return make


@pytest.fixture
def log(make_log: MakeLog) -> PartitionLog:
    return make_log()
