"""Kafka's script names: how they end, where they are written, and what starting and stopping a server comes to."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla import __version__
from ottla.cli import start
from ottla.cli.failures import UsageError
from ottla.cli.kafka_names import aliases, scripts, server
from ottla.cli.kafka_names.scripts import SCRIPTS, Script, run_script
from ottla.cli.main import COMMANDS, main
from tests.own_thread import patch_own_thread

NAMES = [
    *("kafka-topics.sh", "kafka-console-producer.sh", "kafka-console-consumer.sh", "kafka-consumer-groups.sh"),
    *("kafka-configs.sh", "kafka-get-offsets.sh", "kafka-log-dirs.sh", "kafka-delete-records.sh"),
    *("kafka-transactions.sh", "kafka-acls.sh", "kafka-broker-api-versions.sh", "kafka-reassign-partitions.sh"),
    *("kafka-leader-election.sh", "kafka-dump-log.sh", "kafka-producer-perf-test.sh", "kafka-consumer-perf-test.sh"),
    *("kafka-e2e-latency.sh", "kafka-verifiable-producer.sh", "kafka-verifiable-consumer.sh", "kafka-cluster.sh"),
    *("kafka-server-start.sh", "kafka-server-stop.sh"),
]

# How they end


class Command:
    """A command that ends as its test says."""

    def __init__(self, ending: int | BaseException) -> None:
        self.ending = ending
        self.called: list[tuple[object, ...]] = []

    def main(self, *arguments: object) -> int:
        self.called.append(arguments)
        if isinstance(self.ending, BaseException):
            raise self.ending
        return self.ending


@pytest.mark.parametrize(
    ("ending", "code_of_script", "code_of_command"),
    [
        (0, 0, 0),
        (1, 1, 1),
        (2, 1, 2),
        (7, 7, 7),
        (SystemExit(), 0, 0),
        (SystemExit(0), 0, 0),
        (SystemExit(2), 1, 2),
        (SystemExit(130), 130, 130),
        (SystemExit("a sentence"), 1, 1),
    ],
    ids=str,
)
def test_exit_codes(
    ending: int | BaseException, code_of_script: int, code_of_command: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = Command(ending)
    for module in (scripts, sys.modules[main.__module__]):
        monkeypatch.setattr(module, "import_module", lambda name: command)
    assert run_script("kafka-topics.sh", ["a", "b"]) == code_of_script
    monkeypatch.setitem(SCRIPTS, "kafka-topics.sh", Script("ottla.cli.topics", speaks_kafka=False))
    assert run_script("kafka-topics.sh", ["a"]) == code_of_script
    assert main(["topics", "c"]) == code_of_command
    assert command.called == [(["a", "b"], "kafka-topics.sh"), (["a"],), (["c"],)]


def test_an_interrupted_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts, "import_module", lambda name: Command(KeyboardInterrupt()))
    assert run_script("kafka-topics.sh", []) == 130


@pytest.mark.parametrize("name", NAMES)
def test_every_script_tells_its_version(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_script(name, ["--version"]) == 0
    assert capsys.readouterr().out == f"ottla {__version__}\n"


def test_the_command_tells_its_version_and_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"ottla {__version__}\n"
    shown = []
    for arguments in ([], ["--help"], ["-h"], ["help"]):
        assert main(arguments) == 0
        shown.append(capsys.readouterr().out)
    assert set(shown) == {shown[0]} and shown[0].startswith("Usage: ottla COMMAND [OPTIONS]\n")
    width = len("delete-records")
    lines = [f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()]
    assert "\nCommands:\n" + "\n".join(lines) + "\n\n" in shown[0]


@pytest.mark.parametrize(
    ("name", "hint"), [("topic", " Did you mean 'topics'?"), ("prodce", " Did you mean 'produce'?"), ("xyz", "")]
)
def test_a_command_that_is_none(name: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name]) == 2
    assert capsys.readouterr().err == f"ottla has no command {name!r}.{hint} `ottla --help` lists them.\n"


# Where they are written


def test_scripts_are_written_into_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for _ in range(2):  # Our own are written over.
        assert main(["aliases", "~/deep/bin"]) == 0
        assert capsys.readouterr().out == f"Wrote 22 scripts to {tmp_path / 'deep' / 'bin'}.\n"
    written = {path.name: path for path in (tmp_path / "deep" / "bin").iterdir()}
    assert sorted(written) == sorted(NAMES) and list(SCRIPTS) == NAMES
    for name, path in written.items():
        assert path.read_text() == f'#!/bin/sh\nexec {sys.executable} -m ottla.cli.kafka_names.scripts {name} "$@"\n'
        assert stat.S_IMODE(path.stat().st_mode) == 0o755


def test_what_is_no_script_of_ours_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    foreign = tmp_path / "kafka-topics.sh"
    foreign.write_bytes(b"\xffexec java")
    assert aliases.main.__module__ == "ottla.cli.kafka_names.aliases"
    assert main(["aliases", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"{foreign}: is not a script of ours, and is not written over\n"
    assert list(tmp_path.iterdir()) == [foreign] and foreign.read_bytes() == b"\xffexec java"


@pytest.mark.parametrize("arguments", [[], ["a", "b"]])
def test_one_directory_is_named(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["aliases", *arguments]) == 2
    assert capsys.readouterr().err.endswith("Error: name one directory\n")


# Servers


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    found: list[list[str]] = []

    def begin(arguments: list[str]) -> int:
        found.append(arguments)
        return 3

    monkeypatch.setattr(start, "main", begin)
    return found


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [
        (["p"], ["p"]),
        (["p", "--override", "a=b"], ["p", "--override", "a=b"]),
        (["-name", "kafka", "p"], ["p"]),
        (["p", "-daemon"], ["p", "-daemon"]),
    ],
)
def test_a_server_in_the_foreground(started: list[list[str]], arguments: list[str], passed: list[str]) -> None:
    assert run_script(server.START, arguments) == 3
    assert started == [passed]


@pytest.mark.parametrize("arguments", [[], ["-daemon"], ["-name", "x"], ["-daemon", "-name", "x"]])
def test_a_server_needs_its_settings(
    started: list[list[str]], arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_script(server.START, arguments) == 1
    usage = "USAGE: ./kafka-server-start.sh [-daemon] server.properties [--override property=value]*\n"
    assert (capsys.readouterr().err, started) == (usage, [])


@pytest.mark.parametrize("log_dir", [None, "there/deep"])
def test_a_server_behind(log_dir: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[list[str], dict[str, Any]]] = []

    def begin(command: list[str], *, stdout: Any, **options: Any) -> None:
        assert Path(stdout.name) == Path(log_dir or "logs") / "kafkaServer.out"
        stdout.write(b"a line\n")
        called.append((command, options))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "Popen", begin)
    monkeypatch.delenv("LOG_DIR", raising=False)
    if log_dir is not None:
        monkeypatch.setenv("LOG_DIR", log_dir)
    for _ in range(2):
        assert run_script(server.START, ["-daemon", "-name", "kafka", "p", "--override", "a=b"]) == 0
    command = [sys.executable, "-m", "ottla.cli.kafka_names.scripts", "kafka-server-start.sh", "p", "--override", "a=b"]
    options = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT, "start_new_session": True}
    assert called == [(command, options)] * 2
    assert (tmp_path / (log_dir or "logs") / "kafkaServer.out").read_text() == "a line\n" * 2


@pytest.mark.parametrize(
    ("name", "number"),
    [(None, signal.SIGTERM), ("KILL", signal.SIGKILL), ("SIGINT", signal.SIGINT), ("TERM", signal.SIGTERM)],
)
def test_servers_are_stopped(
    name: str | None, number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    killed: list[tuple[int, int]] = []
    patch_own_thread(monkeypatch, os, "kill", lambda process_id, with_: killed.append((process_id, with_)))
    monkeypatch.setattr(server, "_running", lambda: iter([7, 8]))
    monkeypatch.delenv("SIGNAL", raising=False)
    if name is not None:
        monkeypatch.setenv("SIGNAL", name)
    assert run_script(server.STOP, []) == 0
    assert killed == [(7, number), (8, number)] and capsys.readouterr().out == ""
    monkeypatch.setattr(server, "_running", lambda: iter([]))
    assert run_script(server.STOP, []) == 1
    assert capsys.readouterr().out == "No kafka server to stop\n" and len(killed) == 2
    monkeypatch.setenv("SIGNAL", "X")
    with pytest.raises(UsageError, match=r"^SIGNAL 'X' is no signal$"):
        server.main([], server.STOP)


def test_servers_are_known_by_how_they_were_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = [sys.executable, "-m", "ottla.cli.kafka_names.scripts", "kafka-server-start.sh"]
    for name, words in {
        "7": [*ours, "p"],
        "8": ours,
        "9": [*ours[:3], "kafka-topics.sh"],
        "10": ["sh", *ours],
        "11": ours[:3],
        "self": ours,
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "cmdline").write_bytes(b"\0".join(map(str.encode, words)) + b"\0")
    (tmp_path / "12").mkdir()
    (tmp_path / "12" / "cmdline").symlink_to(tmp_path / "gone")
    monkeypatch.setattr(server, "Path", lambda _: tmp_path)
    assert sorted(server._running()) == [7, 8]
    own_user = os.getuid()
    monkeypatch.setattr(server, "os", SimpleNamespace(getuid=lambda: own_user + 1))
    assert list(server._running()) == []
