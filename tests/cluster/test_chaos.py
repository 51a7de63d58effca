"""A few rows of the table of faults, shortened, and a few faults of the random mix, with seeds that stay the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.chaos import broker_rows, client_rows, disk_rows  # noqa: F401 (they add rows)
from tests.cluster.chaos.random_faults import run
from tests.cluster.chaos.table import ROWS, play
from tests.ports import free_ports

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("row_id", ["F07", "D04"])
def test_a_row_of_the_table(row_id: str, tmp_path: Path) -> None:
    result = play(ROWS[row_id], tmp_path, seed=7, short=True)
    assert result.verdict.startswith("ok"), result
    assert result.figures.records > 100


def test_what_is_acknowledged_survives_kills(tmp_path: Path) -> None:
    figures = run(tmp_path / "cluster", port=free_ports(3), seed=7, faults=2)
    assert figures.acknowledged > 100
    assert sum(figures.faults.values()) == 2
