"""Questions at a terminal, in the middle of work on an event loop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

ASKING = """
import asyncio
from ottla.cli.confirming import confirm
from ottla.cli.failures import run_client

async def work():
    confirm("Delete them?", yes=False)
    print("deleted")

run_client(work())
"""
PATIENCE_S = 60


class Asked:
    """A process that has asked its question on a terminal."""

    def __init__(self) -> None:
        self._terminal, inside = os.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", ASKING], stdin=inside, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        os.close(inside)
        assert self.process.stderr is not None
        self.question = self.process.stderr.read(len("Delete them? [y/N] "))

    def end(self) -> tuple[int, bytes]:
        output, _ = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, output

    def answer(self, text: bytes) -> None:
        os.write(self._terminal, text)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        os.close(self._terminal)


@pytest.fixture
def asked() -> Iterator[Asked]:
    asked = Asked()
    yield asked
    asked.close()


@pytest.mark.parametrize(
    ("answer", "code", "output"),
    [(b"y\n", 0, b"deleted\n"), (b" YES \n", 0, b"deleted\n"), (b"n\n", 1, b""), (b"\n", 1, b""), (b"\x04", 1, b"")],
)
def test_only_a_yes_is_one(asked: Asked, answer: bytes, code: int, output: bytes) -> None:
    assert asked.question == b"Delete them? [y/N] "
    asked.answer(answer)
    assert asked.end() == (code, output)


def test_one_ctrl_c_is_enough_at_a_question(asked: Asked) -> None:
    assert asked.question == b"Delete them? [y/N] "
    asked.process.send_signal(signal.SIGINT)
    assert asked.end() == (130, b"")
