"""Runs tests against a mutant: a forked process with a copy of src in front of its path. The work tree is only read.

Libraries are imported once, before the fork; Ottla itself is imported by each child, from the copy.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.mutants.operators import apply
from tests.mutants.selection import ROOT, SOURCE, Mutant

_MEMORY_BYTES_MAX = 6 << 30
_POLL_S = 0.02


class Outcome(NamedTuple):
    noticed: bool
    by: str
    """The test that failed first, or how else it ended."""
    seconds: float


def preload() -> None:
    """What tests import besides Ottla, so that a child starts in a fraction of a second."""
    for name in ("pytest", "hypothesis", "hypothesis.stateful", "numpy", "pyarrow", "pandas", "uvloop", "cramjam"):
        with contextlib.suppress(ImportError):
            __import__(name)
    assert not any(name.split(".")[0] == "ottla" for name in sys.modules), "Ottla itself must come from the copy"


@dataclass
class Copy:
    """A copy of src for one process at a time."""

    folder: Path
    _mutated: Path | None = None

    def __post_init__(self) -> None:
        shutil.copytree(ROOT / "src", self.folder / "src", ignore=shutil.ignore_patterns("__pycache__"))

    def take(self, mutant: Mutant | None) -> None:
        if self._mutated is not None:
            shutil.copy2(SOURCE / self._mutated, self.folder / "src" / "ottla" / self._mutated)
            self._mutated = None
        if mutant is not None:
            source = (SOURCE / mutant.path).read_text()
            (self.folder / "src" / "ottla" / mutant.path).write_text(apply(source, mutant.edit))
            self._mutated = mutant.path


@dataclass
class Run:
    """Tests in a process group of their own, until they end or their time is over."""

    copy: Copy
    tests: Sequence[str]
    timeout_s: float
    plugins: Sequence[object] = ()
    _started: float = field(default_factory=time.monotonic)
    _pid: int = 0

    def start(self) -> None:
        self._started = time.monotonic()
        self._pid = os.fork()
        if self._pid == 0:
            self._child()

    def poll(self) -> Outcome | None:
        seconds = time.monotonic() - self._started
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid == 0 and seconds < self.timeout_s:
            return None
        with_group(self._pid, signal.SIGKILL)
        if pid == 0:
            os.waitpid(self._pid, 0)
            return Outcome(True, "no end within its time", seconds)
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            return Outcome(False, "", seconds)
        return Outcome(True, self._first_failure() or f"exit code {code}", seconds)

    @property
    def output(self) -> str:
        return self._output_path.read_text(errors="replace")

    def _first_failure(self) -> str:
        found = re.search(r"^(?:FAILED|ERROR) (\S+)", self.output, re.MULTILINE)
        return found[1] if found else ""

    @property
    def _output_path(self) -> Path:
        return self.copy.folder / "output.txt"

    def _child(self) -> None:
        code = 70
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES_MAX, _MEMORY_BYTES_MAX))
            output = os.open(self._output_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1)
            os.dup2(output, 2)
            code = self._pytest()
        finally:
            os._exit(code)

    def _pytest(self) -> int:
        import pytest

        os.chdir(ROOT)
        source = str(self.copy.folder / "src")
        sys.path.insert(0, source)
        sys.dont_write_bytecode = True
        os.environ |= {
            "PYTHONPATH": source,
            "PYTHONDONTWRITEBYTECODE": "1",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self.copy.folder / "hypothesis"),
        }
        options = ["-q", "--no-header", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=0"]
        options += ["-x", f"--basetemp={self.copy.folder / 'tmp'}"]
        return int(pytest.main([*options, *self.tests], plugins=self.plugins))


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
