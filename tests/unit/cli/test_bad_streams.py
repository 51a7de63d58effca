"""Commands whose output nobody takes, or whose files are none: they end in order, and say why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli.main import main
from tests.unit.cli.commands import Commands
from tests.waiting import PATIENCE_S

OTTLA = f"{sys.executable} -m ottla"
HELP, TOPICS = "--help", "topics list"


def run(line: str, server: str) -> tuple[str, str]:
    """What a shell prints of a line, and what goes to standard error."""
    done = subprocess.run(
        ["bash", "-c", line],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
        env={**os.environ, "OTTLA_BOOTSTRAP_SERVERS": server},
    )
    return done.stdout, done.stderr


@pytest.mark.parametrize("command", [HELP, TOPICS, "completion bash", "consume T --from-beginning --max-messages 2"])
def test_output_that_is_closed(ottla: Commands, filled: str, command: str) -> None:
    arguments = command.replace("T", filled)
    shown, error = run(f"{OTTLA} {arguments} >&-; echo $?", ottla.server)
    assert shown == "0\n"
    assert error.replace("Processed a total of 2 messages\n", "") == ""
    assert run(f"{OTTLA} {arguments} >&- 2>&-; echo $?", ottla.server) == ("0\n", "")


@pytest.mark.parametrize("command", [HELP, TOPICS, "completion bash"])
def test_output_to_a_disk_that_is_full(ottla: Commands, filled: str, command: str) -> None:
    told = run(f"{OTTLA} {command} >/dev/full; echo $?", ottla.server)
    assert told == ("1\n", "input or output: no space left on device\n")


@pytest.mark.parametrize("command", [HELP, "consume T --from-beginning"])
def test_output_to_a_program_that_has_ended(ottla: Commands, filled: str, command: str) -> None:
    """The reader ends before the first line is there."""
    arguments = command.replace("T", filled)
    shown, error = run(f"(sleep 0.1; {OTTLA} {arguments}; echo $? >&2) | true", ottla.server)
    assert (shown, error) == ("", "141\n")


@pytest.mark.parametrize(
    "arguments",
    [["topics", "list"], ["produce", "t"], ["consume", "t"], ["perf", "produce", "t"], ["groups", "list"]],
    ids=" ".join,
)
def test_a_file_of_settings_that_is_no_text(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_bytes(b"acks=\xff\n")
    assert main([*arguments, "--command-config", str(file)]) == 2
    assert f"{file} is no text in UTF-8: byte 5 is 0xff\n" in capsys.readouterr().err


@pytest.mark.parametrize(("command", "setting"), [("produce", "acks=7"), ("consume", "auto.offset.reset=sometimes")])
def test_a_file_of_settings_beats_what_is_usual(
    command: str, setting: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"{setting}\n")
    assert main([command, "t", "--command-config", str(file), "-b", "127.0.0.1:1"]) in (1, 2)
    assert "must be one of" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["perf", "produce", "t", "--num-records", "0"], "--num-records must be at least 1"),
        (["perf", "produce", "t", "--record-size", "-1"], "--record-size must be at least 0"),
        (["perf", "consume", "t", "--timeout", "-1"], "--timeout must be at least 0"),
        (["groups", "reset-offsets", "", "--topic", "t", "--to-earliest"], "a group's name is empty"),
        (["demo", "--rate", "0"], "--rate must be from 1 to 100000"),
        (["demo", "--port", "65536"], "--port 65536 is no port"),
        (["zookeeper", "start", "--nodes", "10"], "--nodes must be from 1 to 9"),
        (["zookeeper"], "name exactly one of start"),
        (["zookeeper", "start", "now"], "'now' is not understood"),
    ],
)
def test_numbers_and_names_that_mean_nothing(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.endswith(f"Error: {words}\n")


def test_a_topic_that_is_not_there_is_not_waited_for(ottla: Commands, filled: str) -> None:
    code, _, error = ottla("perf", "consume", f"{filled}x", "--num-records", "1")
    assert (code, error) == (1, f"topic '{filled}x' does not exist; did you mean '{filled}'?\n")
