"""The page about pipelines, followed as a newcomer does: a new directory, a new broker, block after block."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.docs.blocks import Block, blocks
from tests.spark.conftest import SHORT_LIVED

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

PATIENCE_S = 400.0
SCRIPTS = sysconfig.get_path("scripts")
_FILE_NAME = re.compile(r"# (\S+\.yaml)\n")
_PRINTED = re.compile(r"^(\d+) greetings$", re.MULTILINE)


def newcomers_directory(tmp_path: Path) -> Path:
    """The environment of the README in `.venv`, and the files that the pages tell to make."""
    place = tmp_path / "work"
    place.mkdir()
    (place / ".venv").symlink_to(sys.prefix)
    for block in blocks("docs/pipelines.md", "yaml"):
        if named := _FILE_NAME.match(block.code):
            (place / named[1]).write_text(block.code)
    return place


def environment(broker: BrokerProcess, *, is_active: bool) -> dict[str, str]:
    """That of a shell, with the virtual environment activated or not."""
    path = [entry for entry in os.environ["PATH"].split(os.pathsep) if Path(entry) != Path(SCRIPTS)]
    kept = {name: text for name, text in os.environ.items() if name != "PYSPARK_PYTHON"}
    return {
        **kept,
        "PATH": os.pathsep.join([SCRIPTS, *path] if is_active else path),
        "OTTLA_BOOTSTRAP_SERVERS": broker.bootstrap,
        "PYSPARK_SUBMIT_ARGS": f"--conf 'spark.driver.extraJavaOptions={SHORT_LIVED}' pyspark-shell",
    }


def run(command: list[str], directory: Path, environment: dict[str, str]) -> str:
    """What a command writes, which has to succeed. All it has started ends with it."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=directory,
        env=environment,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert process.returncode == 0, output
    return output


def shell(block: Block, directory: Path, environment: dict[str, str]) -> str:
    return run(["bash", "-euo", "pipefail", "-c", block.code], directory, environment)


@pytest.mark.spark
@pytest.mark.xdist_group("spark-drivers")
@pytest.mark.timeout(1200)
def test_from_the_first_line_on(tmp_path: Path) -> None:
    directory = newcomers_directory(tmp_path)
    broker = BrokerProcess(tmp_path / "broker").start()
    try:
        active, not_active = environment(broker, is_active=True), environment(broker, is_active=False)
        (greeting,) = [block for block in blocks("README.md", "sh") if "ottla produce" in block.code]
        assert "hello" in shell(greeting, directory, not_active)

        first_pipeline, second_chances, moves = blocks("docs/pipelines.md", "sh")
        told = shell(first_pipeline, directory, active)
        assert "orders.yaml: fine, 2 flows\n" in told
        assert "totals: ended after " in told
        (total,) = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
        assert (total["customer"], float(total["total"])) == ("ann", 12.5)

        nothing = "orders.unreadable has no letters of source orders that are meant and were not sent back before\n"
        assert shell(second_chances, directory, active) == nothing * 3
        told = shell(moves, directory, active)
        assert "2 offsets are read again: orders.totals keeps what was written before" in told
        assert "flow totals goes on at its new position; its old checkpoint is " in told
        assert told.endswith("group billing goes on there\n")

        # All Python in one process; that of the README goes on where the page ends.
        (more,) = blocks("README.md", "pycon")
        code = [block.against(broker.bootstrap) for block in blocks("docs/pipelines.md")]
        code += [more.against(broker.bootstrap).replace(">>> ", ""), 'print(rows.count(), "greetings")']
        (directory / "script.py").write_text("\n".join(code))
        printed = run([sys.executable, "script.py"], directory, not_active)
        assert _PRINTED.findall(printed) == ["4", "4"], "one of the README's, three of the page's"
    finally:
        assert broker.stop() == 0, "\n".join(broker.log_lines)
