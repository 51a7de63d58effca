"""Runs Kafka's script names by the hundred: a process that has imported the commands forks for each of them.

`python -m tests.interop.terminal.forked_commands` takes a line of JSON for each command and answers its exit code.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import IO

from ottla.cli.kafka_names.scripts import SCRIPTS, run_script
from tests.interop.terminal.transcript import Said

_IMPORTED = ("ottla.client.aio.admin.admin", "ottla.client.aio.consumer", "ottla.client.aio.producer")


class ForkedCommands:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, words: list[str], text: str, timeout_s: int, interrupt_after_s: int | None = None) -> Said:
        """A command that does not end in time is killed: its exit code is -9."""
        (self._directory / ".in").write_text(text)
        request = {"words": words, "cwd": str(self._directory), "timeout_s": timeout_s, "interrupt": interrupt_after_s}
        sending, receiving = self._pipes()
        sending.write(json.dumps(request) + "\n")
        sending.flush()
        code = int(receiving.readline())
        read = [(self._directory / name).read_text(errors="replace") for name in (".out", ".err")]
        return Said(code, *read)

    def close(self) -> None:
        self._pipes()[0].close()
        self._process.wait()

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin is not None and self._process.stdout is not None
        return self._process.stdin, self._process.stdout


def _serve() -> None:
    for script in SCRIPTS.values():
        import_module(script.module)
    for module in _IMPORTED:
        import_module(module)
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _run(request)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _run(request: dict[str, object]) -> None:
    os.chdir(str(request["cwd"]))
    for number, (name, mode) in enumerate(((".in", os.O_RDONLY), (".out", os.O_WRONLY), (".err", os.O_WRONLY))):
        os.dup2(os.open(name, mode | (os.O_CREAT | os.O_TRUNC if number else 0), 0o600), number)
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
    if request["interrupt"]:
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
        signal.alarm(int(str(request["interrupt"])))
    else:
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        signal.alarm(int(str(request["timeout_s"])))
    words = request["words"]
    assert isinstance(words, list)
    code = 70
    try:
        code = run_script(words[0], words[1:])
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
