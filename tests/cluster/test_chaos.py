"""A few faults of the chaos run, with a seed that is always the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.chaos_run import run
from tests.ports import free_ports


@pytest.mark.timeout(300)
def test_what_is_acknowledged_survives_kills(tmp_path: Path) -> None:
    figures = run(tmp_path / "cluster", port=free_ports(3), seed=7, faults=4)
    assert figures.acknowledged > 100
    assert sum(figures.faults.values()) == 4
