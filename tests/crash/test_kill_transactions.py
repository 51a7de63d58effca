"""Brokers and clients killed amid transactions, the short way. `make crash-transactions` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.transaction_run import AllOrNothingRun, CopyRun

pytestmark = pytest.mark.crash

SEED = 98
RECORDS = 100_000
COPIED = 20_000


def test_transactions_to_eight_partitions_are_there_whole_or_not_at_all(tmp_path: Path) -> None:
    figures = AllOrNothingRun(tmp_path / "data", SEED).run(8, RECORDS)
    # The run judges itself; these only make sure that there was something to judge.
    assert figures.broker_kills == 9
    assert figures.records >= RECORDS
    assert figures.committed > 100 and figures.aborted > 10
    assert figures.read > RECORDS // 2


def test_a_copy_is_made_exactly_once(tmp_path: Path) -> None:
    figures = CopyRun(tmp_path / "data", SEED).run(2, 2, COPIED)
    assert (figures.broker_kills, figures.client_kills) == (2, 2)
    assert figures.copied == COPIED
