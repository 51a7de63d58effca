"""The controller's role: nobody has it while the node of its epoch is damaged, and who has lost it takes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.errors import KafkaError
from ottla.metadata import paths
from ottla.metadata.store import Create, Delete, Set
from tests.unit.broker.controller.cluster import Cluster, run, until


@pytest.mark.parametrize("garbage", [b"", b"seven", b"\xff", b"99999999999", b"{}"])
def test_an_epoch_that_is_no_number_is_named(tmp_path: Path, garbage: bytes) -> None:
    async def scenario(cluster: Cluster) -> None:
        first = await cluster.elected(1)
        await first.stop()
        await cluster.store.behind_its_back(Delete(paths.CONTROLLER), Set(paths.CONTROLLER_EPOCH, garbage))
        with pytest.raises(KafkaError, match=r"no controller until the node /controller_epoch is mended: .*no whole"):
            await cluster.controller(2).campaign()
        assert await cluster.store.get(paths.CONTROLLER) is None

    run(tmp_path, scenario)


def test_there_is_a_controller_again_once_the_epoch_is_mended(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: Cluster) -> None:
        first = await cluster.elected(1)
        second = cluster.controller(2)
        second.stand_by()
        await first.stop()
        await cluster.store.behind_its_back(Set(paths.CONTROLLER_EPOCH, b"seven"))
        await cluster.store.commit([Delete(paths.CONTROLLER)])
        await until(lambda: "until the node /controller_epoch is mended: 'seven' is no whole number" in caplog.text)
        assert not second.is_active
        await cluster.store.behind_its_back(Set(paths.CONTROLLER_EPOCH, b"7"))
        await until(lambda: second.is_active)
        assert second.epoch == 8

    run(tmp_path, scenario)


def test_a_failed_directory_is_left_to_the_next_controller(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        first = await cluster.elected(1)
        second = await cluster.usurper(2)
        await second.stop()
        assert first.is_active, "it has not noticed yet"
        event = f"{paths.LOG_DIR_EVENTS}/log_dir_event_0000000000"
        await cluster.store.behind_its_back(Create(event, paths.encode_log_dir_event(3)))
        await until(lambda: not first.is_active)
        assert await cluster.store.get(event) is not None

    run(tmp_path, scenario)
