"""Runs tests against a mutant: a forked process in a copy of the work tree, which itself is only read, once.

Libraries are imported before the fork; Ottla and the tests are imported by each child, from the copy.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.mutants.operators import apply
from tests.mutants.selection import ROOT, Mutant

_MEMORY_BYTES_MAX = 16 << 30
"""Of address space, a Java included."""
_POLL_S = 0.02


class Outcome(NamedTuple):
    noticed: bool
    by: str
    """The test that failed first or had no end, or how else it ended."""
    seconds: float


def preload() -> None:
    """What tests import besides Ottla, so that a child starts in a fraction of a second."""
    for name in ("pytest", "hypothesis", "hypothesis.stateful", "numpy", "pyarrow", "pandas", "uvloop", "cramjam"):
        with contextlib.suppress(ImportError):
            __import__(name)
    assert not any(name.split(".")[0] == "ottla" for name in sys.modules), "Ottla itself must come from the copy"


@dataclass
class Copy:
    """A copy of the work tree for one process at a time."""

    folder: Path
    _mutated: tuple[Path, str] | None = None

    def __post_init__(self) -> None:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).is_file():
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.folder / name)
        if (ROOT / ".tools").exists():
            (self.folder / ".tools").symlink_to((ROOT / ".tools").resolve())

    @property
    def source(self) -> Path:
        return self.folder / "src" / "ottla"

    def take(self, mutant: Mutant | None) -> None:
        if self._mutated is not None:
            self._write(*self._mutated)
            self._mutated = None
        if mutant is not None:
            path = self.source / mutant.path
            self._mutated = path, path.read_text()
            self._write(path, apply(self._mutated[1], mutant.edit))

    def _write(self, path: Path, text: str) -> None:
        """Two texts of one length and one second are the same to who looks for compiled modules: they go, too."""
        path.write_text(text)
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()


@dataclass
class Run:
    """Tests in a process group of their own, until they end or their time is over."""

    copy: Copy
    tests: Sequence[str]
    timeout_s: float
    plugins: Sequence[object] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    stops_early: bool = True
    _started: float = field(default_factory=time.monotonic)
    _pid: int = 0

    def start(self) -> None:
        self._started = time.monotonic()
        if not self.tests:
            return
        self._running_path.unlink(missing_ok=True)
        self._pid = os.fork()
        if self._pid == 0:
            self._child()

    def poll(self) -> Outcome | None:
        seconds = time.monotonic() - self._started
        if not self.tests:
            return Outcome(False, "", seconds)
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid == 0 and seconds < self.timeout_s:
            return None
        if pid == 0:
            self.kill()
            return Outcome(True, self._running or "no end within its time", seconds)
        with_group(self._pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(status)
        if code in (0, 5):  # all passed, or there was none
            return Outcome(False, "", seconds)
        other = self._running if "+ Timeout +" in self.output else f"exit code {code}"
        return Outcome(True, next(iter(self.failures), other), seconds)

    def kill(self) -> None:
        """Before its end, with all it has started."""
        if self._pid:
            with_group(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)

    @property
    def output(self) -> str:
        return self._output_path.read_text(errors="replace")

    @property
    def failures(self) -> list[str]:
        return re.findall(r"^(?:FAILED|ERROR) (\S+?\.py(?:::.*?)?)(?: - .*)?$", self.output, re.MULTILINE)

    @property
    def _running(self) -> str:
        """The test that was under way when it ended: one without an end."""
        return self._running_path.read_text() if self._running_path.exists() else ""

    @property
    def _running_path(self) -> Path:
        return self.copy.folder / "running.txt"

    @property
    def _output_path(self) -> Path:
        return self.copy.folder / "output.txt"

    def _child(self) -> None:
        code = 70
        try:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES_MAX, _MEMORY_BYTES_MAX))
            output = os.open(self._output_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1)
            os.dup2(output, 2)
            code = self._pytest()
        finally:
            os._exit(code)

    def _pytest(self) -> int:
        import pytest

        os.chdir(self.copy.folder)
        for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
            del sys.modules[name]
        source = str(self.copy.folder / "src")
        sys.path[:0] = [source, str(self.copy.folder)]
        sys.dont_write_bytecode = False
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ |= {
            "PYTHONPATH": source,
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self.copy.folder / "hypothesis"),
            **self.environment,
        }
        options = ["-q", "--no-header", "--tb=short", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
        options += ["-x"] * self.stops_early + [f"--basetemp={self.copy.folder / 'tmp'}"]
        return int(
            pytest.main([*options, *self.tests], plugins=[WithoutKafka(), Running(self._running_path), *self.plugins])
        )


class Running:
    """A plugin of pytest that notes which test is under way."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._path.write_text(nodeid)


class WithoutKafka:
    """A plugin of pytest that leaves out tests with a broker of Apache Kafka: it has none of our mutants."""

    def pytest_collection_modifyitems(self, items: list[object]) -> None:
        items[:] = [item for item in items if "kafka" not in map(str, _parameters(item))]


def _parameters(item: object) -> list[object]:
    callspec = getattr(item, "callspec", None)
    return [] if callspec is None else [callspec.params.get("broker_kind")]


def with_group(pid: int, number: int) -> None:
    """Also those the tests have started: they are in the same group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


def wait_for(runs: dict[int, Run]) -> tuple[int, Outcome]:
    """The next of the running ones that has ended."""
    while True:  # every run has a deadline of its own
        for key, run in runs.items():
            outcome = run.poll()
            if outcome is not None:
                return key, outcome
        time.sleep(_POLL_S)
