"""When the cleaner looks for work, and what ends a pass without any result."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import LogDirError
from ottla.broker import cleaner as cleaner_module
from tests.log_lines import messages_of
from tests.unit.broker.replica_world import ReplicaWorld, in_world
from tests.unit.broker.test_cleaner import COMPACTED, cleaner_of, counts, fill


@pytest.mark.parametrize(
    ("is_busy", "backoff_ms", "done"),
    [
        (False, "15000", [("sleep", 15.0)] * 3),
        (True, "15000", [("wait", 15.0, "FIRST_COMPLETED")] * 3),
        (False, "0", [("sleep", 0.001)] * 3),
        (True, "0", [("wait", 0.001, "FIRST_COMPLETED")] * 3),
    ],
)
def test_it_looks_again_after_a_while_or_when_a_pass_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_busy: bool, backoff_ms: str, done: list[Any]
) -> None:
    found: list[Any] = []

    def note(*what: Any) -> None:
        if len(found) == 3:
            raise asyncio.CancelledError
        found.append(what)

    async def wait(tasks: Any, *, timeout: float, return_when: str) -> None:
        note("wait", timeout, return_when)

    async def sleep(seconds: float) -> None:
        note("sleep", seconds)

    async def scenario(world: ReplicaWorld) -> None:
        cleaner: Any = cleaner_of(world, log_cleaner_backoff_ms=backoff_ms)
        if is_busy:
            cleaner._running = {object(): object()}
        stand_in = SimpleNamespace(wait=wait, sleep=sleep, FIRST_COMPLETED=asyncio.FIRST_COMPLETED)
        with monkeypatch.context() as patched:
            patched.setattr(cleaner_module, "asyncio", stand_in)
            with pytest.raises(asyncio.CancelledError):
                await cleaner._schedule()
        assert found == done

    in_world(tmp_path, scenario, COMPACTED)


@pytest.mark.parametrize(
    ("error", "is_deleted", "is_offline"),
    [
        (LogDirError("broken"), False, True),
        (OSError(5, "Input/output error"), False, True),
        (OSError(5, "Input/output error"), True, False),
    ],
)
def test_what_a_failed_pass_takes_along(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    is_deleted: bool,
    is_offline: bool,
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        partition = await world.lead("t")
        cleaner = cleaner_of(world)

        async def fails(log: Any) -> None:
            log.is_deleted = is_deleted
            raise error

        monkeypatch.setattr(cleaner, "_clean", fails)
        await cleaner.clean(partition.log)
        partition.log.is_deleted = False
        assert partition.is_offline is is_offline
        assert bool(world.log_dirs.failed) is is_offline
        assert cleaner._not_before_ms == {}

    in_world(tmp_path, scenario, COMPACTED)
    assert messages_of(caplog, "ottla.broker.cleaner") == []


@pytest.mark.parametrize("what", ["nothing", "deleted", "cut"])
@pytest.mark.parametrize("moment", ["with an error", "at the end"])
def test_a_log_that_is_another_one_by_now_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, moment: str
) -> None:
    async def scenario(world: ReplicaWorld) -> None:
        partition = await world.lead("t")
        fill(world, partition)
        log, cleaner = partition.log, cleaner_of(world)

        def groups() -> Any:
            if what == "deleted":
                log.is_deleted = True
            if what == "cut":
                log.truncate_to(5)
            if moment == "with an error":
                raise OSError(5, "Input/output error")
            yield from ()

        passes = SimpleNamespace(
            groups=groups,
            end_offset=6,
            keyless=0,
            counts=SimpleNamespace(records_after=2, records_before=6, bytes_after=1, bytes_before=3),
        )
        monkeypatch.setattr(cleaner, "_begin", lambda *_, **__: passes)
        await cleaner.clean(log)
        log.is_deleted = False
        assert partition.is_offline is (what == "nothing" and moment == "with an error")
        assert (log.clean_offset == 6) is (what == "nothing" and moment == "at the end")
        assert counts(partition) == ([2, 2, 2] if what != "cut" else [2, 2])

    in_world(tmp_path, scenario, COMPACTED)
