"""ottla cluster restart: one broker after the other, and none while something is missing."""

from __future__ import annotations

import os
import signal
from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.cli import rolling_restart
from ottla.cli.rolling_restart import restart
from tests.own_thread import patch_own_thread
from tests.waiting import run_async


def status(alive: tuple[int, ...] = (1, 2), behind: tuple[str, ...] = ()) -> Any:
    brokers = [SimpleNamespace(broker_id=number, is_alive=number in alive) for number in (1, 2)]
    return SimpleNamespace(brokers=brokers, under_replicated=[SimpleNamespace(partition=name) for name in behind])


class Cluster:
    """Two brokers that somebody starts again when they are stopped."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.events: list[str] = []
        self.looks: list[Any] = []
        self.is_supervised = True
        self.is_running = True
        for number in (1, 2):
            (data / f"broker-{number}").mkdir(parents=True)
            self.pid_file(number).write_text(str(100 + number))
        (data / "broker-old").mkdir()
        (data / "broker-old" / "pid").write_text("9")

    def pid_file(self, number: int) -> Path:
        return self.data / f"broker-{number}" / "pid"

    def kill(self, pid: int, number: int) -> None:
        assert number == signal.SIGTERM
        if not self.is_running:
            raise ProcessLookupError
        self.events.append(f"stopped {pid}")
        if self.is_supervised:
            self.pid_file(pid - 100).write_text(str(pid + 100))

    async def look(self, admin: object) -> Any:
        found = self.looks.pop(0) if self.looks else status()
        if isinstance(found, Exception):
            raise found
        away = [broker for broker in found.brokers if not broker.is_alive]
        self.events.append("not well" if away or found.under_replicated else "well")
        return found


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster(tmp_path)

    @asynccontextmanager
    async def open_admin(options: Namespace, client_id: str) -> AsyncIterator[None]:
        yield None

    monkeypatch.setattr(rolling_restart, "open_admin", open_admin)
    monkeypatch.setattr(rolling_restart, "read_status", made.look)
    monkeypatch.setattr(rolling_restart, "_POLL_S", 0.001)
    patch_own_thread(monkeypatch, os, "kill", made.kill)
    return made


def run(cluster: Cluster, timeout_s: float = 60) -> None:
    run_async(restart(Namespace(data=str(cluster.data), timeout_s=timeout_s)))


def test_each_broker_waits_until_all_is_well(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    away = KafkaError("away", code=ErrorCode.NETWORK_EXCEPTION)
    cluster.looks = [away, status(behind=("t-0",)), status(), OSError("gone"), status(alive=(2,)), status()]
    run(cluster)
    assert cluster.events == ["not well", "well", "stopped 101", "not well", "well", "stopped 102", "well"]
    told = [line.partition(",")[0] for line in capsys.readouterr().out.splitlines()]
    assert told == [f"broker {number} was restarted and is in sync" for number in (1, 2)]


@pytest.mark.parametrize(
    ("found", "missing"),
    [
        (status(alive=(1,)), "before the restart, broker 2 is not there"),
        (status(behind=("t-0", "t-1")), "2 partitions lack copies, such as t-0"),
        (
            KafkaError("nobody", code=ErrorCode.NETWORK_EXCEPTION),
            "the brokers cannot be asked: NETWORK_EXCEPTION: nobody",
        ),
    ],
)
def test_nothing_is_restarted_while_something_is_missing(cluster: Cluster, found: Any, missing: str) -> None:
    cluster.looks = [found] * 1_000_000
    with pytest.raises(KafkaError, match=missing):
        run(cluster, timeout_s=0.05)
    assert not any(event.startswith("stopped") for event in cluster.events)


def test_a_broker_that_nobody_starts_again(cluster: Cluster) -> None:
    cluster.is_supervised = False
    with pytest.raises(KafkaError, match="broker 1 was stopped and nobody has started it again"):
        run(cluster, timeout_s=0.05)
    assert cluster.events == ["well", "stopped 101"]


def test_a_broker_that_is_not_running(cluster: Cluster) -> None:
    cluster.is_running = False
    with pytest.raises(KafkaError, match=r"broker 1 is not running \(process 101\)"):
        run(cluster)


def test_a_directory_without_brokers(tmp_path: Path) -> None:
    with pytest.raises(KafkaError, match="holds no brokers"):
        run_async(restart(Namespace(data=str(tmp_path), timeout_s=1)))
