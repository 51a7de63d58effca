"""A broker that lost power must not be taken for one that was stopped cleanly before the cluster has heard of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import KafkaError, StartError
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.startup import Surroundings, start_broker
from ottla.log.log_dir import CLEAN_SHUTDOWN
from ottla.machines.cluster.topics import NewTopic
from tests.waiting import run_async


def no_server(*_: Any) -> Any:
    raise KafkaError("the address is taken")


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_start_that_failed_leaves_things_as_it_found_them(tmp_path: Path, is_clean: bool) -> None:
    async def scenario() -> None:
        config = BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "data")})
        broker = await start_broker(config)
        await broker.topic_admin.create(NewTopic("t", 1, 1))
        await (broker.stop() if is_clean else broker.kill())
        for _ in range(2):
            assert (tmp_path / "data" / CLEAN_SHUTDOWN).exists() == is_clean
            with pytest.raises(StartError, match="the address is taken"):
                await start_broker(config, Surroundings(make_server=no_server))
        broker = await start_broker(config)
        assert broker.replicas.log_dirs.were_closed_cleanly == is_clean
        await broker.stop()
        assert (tmp_path / "data" / CLEAN_SHUTDOWN).exists(), "it was registered, so that everybody knows"

    run_async(scenario())
