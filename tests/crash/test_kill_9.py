"""kill -9 at random moments under load, the short way. `make crash KILLS=100 SEED=…` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.kill_run import KillRun

KILLS = 12
SEED = 20_240_229


@pytest.mark.crash
def test_nothing_acknowledged_is_lost_and_nothing_is_duplicated(tmp_path: Path) -> None:
    figures = KillRun(tmp_path / "data", SEED).run(KILLS)
    # The run judges itself after every kill; these only make sure that there was something to judge.
    assert figures.kills == KILLS
    assert figures.kills_during_start > 0
    assert figures.acknowledged > 5_000
    assert figures.segments > 50
