"""Processes that are looked after: when they are started again, how long is waited, and how they are stopped."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import StartError
from ottla.cli import supervised
from ottla.cli.supervised import Program, _start_all, _SupervisedProcess, supervise
from tests.own_thread import patch_own_thread
from tests.waiting import in_time, run_async


class Process:
    """A process of the operating system that ends when its test says so."""

    pid = 4711

    def __init__(self) -> None:
        self.returncode: int | None = None
        self.signals: list[str] = []
        self.ended = asyncio.Event()
        self.obeys = True

    def end(self, code: int) -> None:
        self.returncode = code
        self.ended.set()

    def send_signal(self, number: signal.Signals) -> None:
        self.signals.append(number.name)
        if self.obeys:
            self.end(0)

    def kill(self) -> None:
        self.signals.append("KILL")
        self.end(-9)

    async def wait(self) -> int:
        await self.ended.wait()
        assert self.returncode is not None
        return self.returncode


class Machine:
    """Starts processes, and has a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        self.now = 100.0
        self.started: list[tuple[tuple[str, ...], dict[str, Any]]] = []
        self.processes: list[Process] = []
        self.waits: list[float] = []
        self.directory = directory
        self.on_start: Callable[[Process], None] = lambda process: None
        self.failure: BaseException | None = None
        patch_own_thread(monkeypatch, asyncio, "create_subprocess_exec", self._exec)
        monkeypatch.setattr(supervised, "time", SimpleNamespace(monotonic=lambda: self.now))

    async def _exec(self, *command: str, stderr: Any, **options: Any) -> Process:
        self.started.append((command, options))
        stderr.write(b"a line\n")
        process = Process()
        self.processes.append(process)
        self.on_start(process)
        return process

    async def ready(self, process: Any) -> None:
        if self.failure is not None:
            raise self.failure

    def program(self, name: str = "it", *, dies_with_parent: bool = False) -> Program:
        place = self.directory / name
        log = self.directory / f"{name}.log"
        return Program(name, ["run", name], place, log, self.ready, dies_with_parent=dies_with_parent)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    return Machine(monkeypatch, tmp_path / "deep")


@pytest.mark.parametrize("dies_with_parent", [False, True])
def test_what_a_process_is_started_with(machine: Machine, dies_with_parent: bool) -> None:
    process = _SupervisedProcess(machine.program(dies_with_parent=dies_with_parent))
    machine.directory.mkdir()
    for _ in range(2):
        run_async(process.start())
    expected = {
        "stdout": asyncio.subprocess.PIPE,
        "start_new_session": True,
        "preexec_fn": supervised._end_with_parent if dies_with_parent else None,
    }
    assert machine.started == [(("run", "it"), expected)] * 2
    assert (machine.directory / "it" / "pid").read_text() == "4711\n"
    assert (machine.directory / "it.log").read_text() == "a line\n" * 2


@pytest.mark.parametrize(
    ("failure", "told"),
    [(EOFError(), "it did not start"), (TimeoutError(), "it did not start within 60 s")],
)
def test_a_process_that_does_not_start(machine: Machine, failure: BaseException, told: str) -> None:
    machine.failure = failure
    machine.directory.mkdir()
    with pytest.raises(StartError) as refusal:
        run_async(_SupervisedProcess(machine.program()).start())
    assert str(refusal.value) == f"{told}\n  a line\n  All of it is in {machine.directory / 'it.log'}."


def test_if_one_does_not_start_the_others_are_not_waited_for(machine: Machine) -> None:
    async def never(process: Any) -> None:
        await asyncio.Event().wait()

    async def test() -> None:
        machine.failure = EOFError()
        slow = _SupervisedProcess(machine.program("slow")._replace(until_ready=never))
        with pytest.raises(StartError, match=r"^bad did not start"):
            await _start_all([slow, _SupervisedProcess(machine.program("bad"))])
        assert asyncio.all_tasks() == {asyncio.current_task()}

    machine.directory.mkdir()
    run_async(test())


def watched(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, *lives_s: float, restarts: bool = True, fails_at: int = 0
) -> list[float]:
    """Processes that live so long, each followed by the next. Returns how long was waited before each."""
    waits: list[float] = []
    real = asyncio.wait_for

    async def wait_for(awaitable: Any, timeout_s: float) -> Any:
        if timeout_s == supervised.START_TIMEOUT_S:
            return await real(awaitable, timeout_s)
        awaitable.close()
        waits.append(timeout_s)
        if len(waits) == len(lives_s):
            return None  # It is to stop.
        machine.failure = EOFError() if len(waits) == fails_at else None
        raise TimeoutError

    left = list(lives_s)

    def begin(process: Process) -> None:
        async def live() -> None:
            machine.now += left.pop(0)
            process.end(3)

        machine.tasks = [*getattr(machine, "tasks", []), asyncio.ensure_future(live())]  # type: ignore[attr-defined]

    async def test() -> None:
        process = _SupervisedProcess(machine.program())
        machine.on_start = begin
        await process.start()
        await process.look_after(asyncio.Event(), restarts=restarts)

    patch_own_thread(monkeypatch, asyncio, "wait_for", wait_for)
    machine.directory.mkdir()
    run_async(test())
    return waits


def test_who_dies_again_and_again_is_started_ever_later(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    lives_s = [1.0, 3.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 3.5, 1.0]
    waits = watched(machine, monkeypatch, *lives_s)
    assert waits == [0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0, 0.2, 0.4]


def test_each_end_and_each_start_is_told(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    watched(machine, monkeypatch, 1.0, 1.0, 1.0, fails_at=2)
    log = f"All of it is in {machine.directory / 'it.log'}."
    ended = "ottla: it ended with exit code 3"
    assert capsys.readouterr().err.splitlines() == [
        *(ended, "  a line", f"  {log}", "ottla: it was started again"),
        *(ended, "  a line", "  a line", f"  {log}"),
        *("ottla: it did not start", "  a line", "  a line", "  a line", f"  {log}"),
        *(ended, "  a line", "  a line", "  a line", f"  {log}"),
    ]


def test_who_is_not_to_be_started_again_is_left(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert watched(machine, monkeypatch, 1.0, restarts=False) == []
    assert capsys.readouterr().err.startswith("ottla: it ended with exit code 3\n  a line\n")
    assert len(machine.started) == 1


def test_an_end_that_was_asked_for_is_not_told(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        process, stop = _SupervisedProcess(machine.program()), asyncio.Event()
        await process.start()
        watching = asyncio.create_task(process.look_after(stop, restarts=True))
        await asyncio.sleep(0)
        stop.set()
        await process.stop()
        await watching
        assert machine.processes[0].signals == ["SIGTERM"]
        await process.stop()
        process.kill()
        assert machine.processes[0].signals == ["SIGTERM"]

    machine.directory.mkdir()
    run_async(test())
    assert capsys.readouterr().err == "" and len(machine.started) == 1


def test_who_does_not_stop_is_killed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def test() -> None:
        process = _SupervisedProcess(machine.program())
        await process.start()
        machine.processes[0].obeys = False
        monkeypatch.setattr(supervised, "STOP_TIMEOUT_S", 0)
        await process.stop()
        assert machine.processes[0].signals == ["SIGTERM", "KILL"]

    machine.directory.mkdir()
    run_async(test())
    assert capsys.readouterr().err == "ottla: it does not stop and is killed\n"


def test_who_has_gone_meanwhile_is_no_trouble(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        process = _SupervisedProcess(machine.program())
        await process.start()

        def gone(*_: object) -> None:
            machine.processes[0].ended.set()
            raise ProcessLookupError

        monkeypatch.setattr(machine.processes[0], "send_signal", gone)
        monkeypatch.setattr(machine.processes[0], "kill", gone)
        process.kill()
        machine.processes[0].wait = process_ended  # type: ignore[method-assign]
        await process.stop()

    async def process_ended() -> int:
        return 0

    machine.directory.mkdir()
    run_async(test())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_all_are_started_announced_and_stopped(
    machine: Machine, number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    announced: list[int] = []

    async def test() -> None:
        def announce() -> None:
            announced.append(len(machine.processes))
            asyncio.get_running_loop().call_soon(signal.raise_signal, number)

        programs = [machine.program("one"), machine.program("two")]
        await in_time(supervise(programs, restarts=True, announce=announce))
        assert asyncio.all_tasks() == {asyncio.current_task()}

    machine.directory.mkdir()
    run_async(test())
    assert announced == [2]
    assert [process.signals for process in machine.processes] == [["SIGTERM"], ["SIGTERM"]]
    assert capsys.readouterr() == ("ottla: stopping\n", "")


def test_if_one_does_not_start_none_is_left(machine: Machine) -> None:
    async def ready(process: Any) -> None:
        pass

    async def test() -> None:
        machine.failure = EOFError()
        programs = [machine.program("good")._replace(until_ready=ready), machine.program("bad")]
        with pytest.raises(StartError, match=r"^bad did not start"):
            await supervise(programs, restarts=True, announce=lambda: pytest.fail("not all are there"))
        assert [process.signals for process in machine.processes] == [["KILL"], ["KILL"]]

    machine.directory.mkdir()
    run_async(test())


def test_how_a_process_is_bound_to_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(supervised, "_prctl", lambda option, number: asked.append((option, number)))
    supervised._end_with_parent()
    # PR_SET_PDEATHSIG, SIGKILL
    assert asked == [(1, 9)]
    monkeypatch.setattr(supervised, "_prctl", None)
    supervised._end_with_parent()
    assert (supervised._load_prctl() is not None) == (sys.platform == "linux")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert supervised._load_prctl() is None
