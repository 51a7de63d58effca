"""The demonstration, as a user starts it: a process with a broker, visitors and a pipeline, ended by time or Ctrl-C."""

from __future__ import annotations

import io
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from ottla.cli.demo.screen import Results, Screen
from tests.ports import free_port

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-drivers"), pytest.mark.timeout(240)]

END = re.compile(r"demo\.page-views holds ([\d,]+) page views, .* counts ([\d,]+): none lost, none counted twice\.")


def start(port: int, data: Path, *options: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "ottla", "demo", "--port", str(port), "--data", str(data), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
    )


def wait_for(process: subprocess.Popen[str], text: str) -> list[str]:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return lines
    raise AssertionError(f"{text!r} was never said:\n{''.join(lines)}")


@pytest.fixture
def port() -> int:
    return free_port()


def test_everything_that_was_sent_is_counted_once(port: int, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")
    with start(port, tmp_path / "data", "--rate", "300", "--duration", "1") as process:
        output, _ = process.communicate(timeout=220)
    assert process.returncode == 0, output
    found = END.search(output)
    assert found, output
    assert found[1] == found[2] != "0"


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_flow_that_starts_again_is_told_of(is_terminal: bool) -> None:
    pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")
    from ottla.cli.demo.counting import Progress

    progress = Progress()
    progress.flow_restarting("to-topic", "[table] is away", failures=2, wait_ms=1500)
    console = Console(file=io.StringIO(), width=40, force_terminal=is_terminal, color_system=None)
    with Screen(console) as screen:
        screen.tell(progress.restarts.popleft())
        screen.update(7, Results(0, {}), None)
    assert isinstance(console.file, io.StringIO)
    told = console.file.getvalue()
    assert "to-topic: [table] is away; failure 2 in a row, starts again in 1.5 s\n" in told
    assert not progress.restarts


def test_without_java_the_broker_runs_alone_and_says_so(port: int, tmp_path: Path) -> None:
    with start(port, tmp_path / "data", PATH="", JAVA_HOME="") as process:
        lines = wait_for(process, "Only the broker runs")
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
    assert "Java 17" in lines[-1]
    assert process.returncode == 0
    assert "Traceback" not in rest


def test_a_port_that_is_taken_is_told_in_a_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with start(taken.getsockname()[1], tmp_path / "data") as process:
            output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "the broker did not start" in output
    assert "Traceback" not in output
