"""A broker as a process: what ends it, its exit code, and what it says."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import StartError
from ottla.broker import app
from ottla.broker.admission import AccessRules
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.startup import Surroundings


class FakeBroker:
    broker_id, cluster_id = 7, "c-1"

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.failed, self.orphaned = asyncio.Event(), asyncio.Event()
        self.endpoints = [SimpleNamespace(listener="PLAINTEXT", host="h", port=port) for port in (1, 2)]
        self.image = SimpleNamespace(
            topics={"a": SimpleNamespace(partitions=[0, 1]), "b": SimpleNamespace(partitions=[0])}
        )
        self.stops = 0

    async def stop(self) -> None:
        self.stops += 1


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[FakeBroker, Surroundings]]]:
    """The brokers that were started. Logging and the collector stay as they are."""
    brokers: list[tuple[FakeBroker, Surroundings]] = []

    async def start(config: BrokerConfig, surroundings: Surroundings) -> FakeBroker:
        brokers.append((FakeBroker(config), surroundings))
        return brokers[-1][0]

    monkeypatch.setattr(app, "start_broker", start)
    monkeypatch.setattr(app, "start_logging", lambda items: None)
    monkeypatch.setattr(app, "_allow_many_open_files", lambda: None)
    threshold = gc.get_threshold()
    yield brokers
    gc.set_threshold(*threshold)
    gc.unfreeze()


def run(end: Callable[[FakeBroker], None], started: list[Any], config: BrokerConfig, monkeypatch: Any) -> int:
    announce = app._announce

    def announce_and_end(broker: Any, took_ms: int) -> None:
        announce(broker, took_ms)
        end(broker)

    monkeypatch.setattr(app, "_announce", announce_and_end)
    return app.run_broker(config)


@pytest.mark.parametrize(
    ("end", "code", "line"),
    [
        (lambda broker: os.kill(os.getpid(), signal.SIGTERM), 0, "because SIGTERM came"),
        (lambda broker: os.kill(os.getpid(), signal.SIGINT), 0, "because SIGINT came"),
        (lambda broker: broker.failed.set(), 1, "no log directory can be used any more"),
        (lambda broker: broker.orphaned.set(), 0, "the process that started this broker's cluster is gone"),
    ],
    ids=["SIGTERM", "SIGINT", "failed", "orphaned"],
)
def test_what_ends_a_broker(
    started: list[tuple[FakeBroker, Surroundings]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    end: Callable[[FakeBroker], None],
    code: int,
    line: str,
) -> None:
    config = BrokerConfig({"log.dirs": str(tmp_path)})
    with caplog.at_level("INFO", "ottla"):
        assert run(end, started, config, monkeypatch) == code
    ((broker, _),) = started
    assert broker.stops == 1
    # Clients that other tests keep open in this process may say something, too.
    messages = [record.getMessage() for record in caplog.records if record.name == app.log.name]
    assert any(line in message for message in messages)
    assert ("all logs are closed" in messages[-1]) == (code == 0)
    assert sum("because" in message for message in messages) == 1


def test_what_a_broker_says_when_it_has_started(
    started: list[tuple[FakeBroker, Surroundings]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = BrokerConfig({"log.dirs": f"{tmp_path}/a,{tmp_path}/b"})
    with caplog.at_level("INFO", "ottla"):
        run(lambda broker: broker.failed.set(), started, config, monkeypatch)
    assert capsys.readouterr().out.splitlines() == [
        "ottla: broker 7 is listening on PLAINTEXT://h:1",
        "ottla: broker 7 is listening on PLAINTEXT://h:2",
        f"ottla: cluster c-1, data in {tmp_path}/a, {tmp_path}/b",
    ]
    assert any("with 2 topics and 3 partitions" in message for message in caplog.messages)
    assert isinstance(started[0][1].access, AccessRules), "without rules everybody may do everything"


def test_how_long_a_broker_took_to_stop(
    started: list[tuple[FakeBroker, Surroundings]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def end(broker: FakeBroker) -> None:
        monkeypatch.setattr(app, "time", SimpleNamespace(monotonic=lambda: next(times_s)))
        broker.orphaned.set()

    times_s = iter([1000.0, 1001.25])
    with caplog.at_level("INFO", "ottla"):
        run(end, started, BrokerConfig({"log.dirs": str(tmp_path)}), monkeypatch)
    assert "broker 7 stopped in 1250 ms; all logs are closed" in caplog.messages


def test_a_broker_that_cannot_start_says_why(
    started: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fail(config: BrokerConfig, surroundings: Surroundings) -> None:
        raise StartError("the port is taken")

    monkeypatch.setattr(app, "start_broker", fail)
    assert app.run_broker(BrokerConfig({"log.dirs": str(tmp_path)})) == 1
    assert capsys.readouterr().err == "ottla: cannot start: the port is taken\n"


@pytest.mark.parametrize(
    ("limits", "refusal", "set_to"),
    [((100, 500), None, [(500, 500)]), ((500, 500), None, []), ((100, 500), ValueError("no"), [])],
)
def test_as_many_files_as_are_allowed(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    limits: tuple[int, int],
    refusal: Exception | None,
    set_to: list[tuple[int, int]],
) -> None:
    done: list[tuple[int, int]] = []

    def set_limits(kind: int, wanted: tuple[int, int]) -> None:
        assert kind == resource.RLIMIT_NOFILE
        if refusal is not None:
            raise refusal
        done.append(wanted)

    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits)
    monkeypatch.setattr(resource, "setrlimit", set_limits)
    app._allow_many_open_files()
    assert done == set_to
    assert [message for message in caplog.messages if "stays at 100" in message] == caplog.messages
    assert bool(caplog.messages) == (refusal is not None)
