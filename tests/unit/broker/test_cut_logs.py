"""A follower that has to cut what was committed says so: only an operator can know what that means."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker.replication.fetchers import _log_cut
from tests.unit.broker.replica_world import ReplicaWorld, in_world


@pytest.mark.parametrize(("offset", "level"), [(3, "INFO"), (2, "ERROR")])
def test_what_is_cut_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture, offset: int, level: str) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        partition = await world.lead("t")
        for _ in range(3):
            world.append(partition)
        assert partition.log.high_watermark == 3
        with caplog.at_level("INFO"):
            _log_cut(partition, offset)
        (line,) = [record for record in caplog.records if "where the leader goes on" in record.message]
        assert line.levelname == level
        assert ("1 records were committed and are gone" in line.message) == (level == "ERROR")

    in_world(tmp_path, scenario)
