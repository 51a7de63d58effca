"""ottla start: which options belong together, and what a cluster's brokers are started with."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli import local_cluster, start
from ottla.cli.local_cluster import ClusterOptions
from ottla.cli.supervised import _ending, _SupervisedProcess
from tests.ports import free_port
from tests.waiting import PATIENCE_S


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--port", "9095"], "--port is for clusters"),
        (["--data", "here"], "--data is for clusters"),
        (["--no-restart"], "--no-restart is for clusters"),
        (["--brokers", "0"], "'0' is no number of brokers"),
        (["--brokers", "-1"], "'-1' is no number of brokers"),
        (["--brokers", "many"], "'many' is no number of brokers"),
    ],
)
def test_options_that_make_no_sense(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        start.main(arguments)
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith(f"{start.USAGE}\nTry 'ottla start -h' for help.\n\nError: ")
    assert words in error


@pytest.fixture
def asked_for(monkeypatch: pytest.MonkeyPatch) -> list[ClusterOptions]:
    """What clusters would have been started with."""
    found: list[ClusterOptions] = []

    def take(options: ClusterOptions) -> int:
        found.append(options)
        return 7

    monkeypatch.setattr(local_cluster, "run_cluster", take)
    return found


def test_a_cluster_has_a_place_and_ports_unless_told_otherwise(
    asked_for: list[ClusterOptions], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert start.main(["--brokers", "1"]) == 7
    assert asked_for == [ClusterOptions(1, 9092, tmp_path / "data" / "cluster", True, [])]
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=3\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    options = ["--brokers", "3", "--port", "9300", "--data", "~/there", "--no-restart", str(file)]
    assert (
        start.main([*options, "--override", "num.partitions=2", "--log-level", "WARN", "--log-level", "a=DEBUG"]) == 7
    )
    overrides = ["num.partitions=2", "ottla.log.level=WARN,a=DEBUG"]
    assert asked_for[1] == ClusterOptions(3, 9300, tmp_path / "home" / "there", False, overrides, file)


def test_a_bad_setting_is_said_once_for_all_brokers(
    asked_for: list[ClusterOptions], capsys: pytest.CaptureFixture[str]
) -> None:
    assert start.main(["--brokers", "3", "--override", "num.partitions=0"]) == 1
    assert asked_for == []
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "num.partitions must be at least 1" in error


def test_a_broker_of_a_cluster_has_its_own_id_port_and_directory(tmp_path: Path) -> None:
    options = ClusterOptions(3, 9300, tmp_path, True, ["broker.id=9", "x=1"], tmp_path / "server.properties")
    command = local_cluster._broker(2, options).command
    assert command[:5] == [sys.executable, "-m", "ottla", "start", str(tmp_path / "server.properties")]
    assert command[5::2] == ["--override"] * 7
    settings = dict(setting.split("=", 1) for setting in command[6::2])
    assert settings == {
        "controlled.shutdown.retry.backoff.ms": "200",
        "x": "1",
        "broker.id": "2",
        "listeners": "PLAINTEXT://127.0.0.1:9301",
        "log.dirs": str(tmp_path / "broker-2"),
        "ottla.cluster.dir": str(tmp_path),
    }


def test_a_cluster_that_cannot_start_shows_the_end_of_the_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = ClusterOptions(1, free_port(), tmp_path, True, ["no.such.setting=1"])
    assert local_cluster.run_cluster(options) == 1
    error = capfd.readouterr().err
    assert error.startswith("ottla: cannot start: broker 1 did not start\n  ")
    assert "no.such.setting" in error
    assert error.endswith(f"  All of it is in {tmp_path / 'broker-1.log'}.\n")


def test_only_the_last_lines_of_a_log_are_shown(tmp_path: Path) -> None:
    broker = _SupervisedProcess(local_cluster._broker(1, ClusterOptions(1, 9300, tmp_path, True)))
    assert broker._tail() == ""
    log = tmp_path / "broker-1.log"
    log.write_text("".join(f"line {number}\n" for number in range(9)))
    expected = [*(f"line {number}" for number in range(4, 9)), f"All of it is in {log}."]
    assert broker._tail() == "".join(f"\n  {line}" for line in expected)


@pytest.mark.parametrize(
    ("code", "words"), [(-9, "was ended by SIGKILL"), (0, "ended with exit code 0"), (1, "code 1")]
)
def test_how_a_broker_ended(code: int, words: str) -> None:
    assert words in _ending(code)


def test_a_process_that_was_never_started_need_not_be_stopped(tmp_path: Path) -> None:
    broker = _SupervisedProcess(local_cluster._broker(1, ClusterOptions(1, 9300, tmp_path, True)))
    broker.kill()
    asyncio.run(broker.stop())


def test_a_cluster_of_one_is_looked_after_and_stops_when_told(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "ottla", "start", "--brokers", "1", "--port", str(port), "--data", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(3)]
        assert said == [
            f"ottla: broker 1 is listening on 127.0.0.1:{port}\n",
            f"ottla: a cluster of 1 brokers, data and logs in {tmp_path}; Ctrl-C stops it\n",
            f"ottla: bootstrap servers: 127.0.0.1:{port}\n",
        ]
        first = int((tmp_path / "broker-1" / "pid").read_text())
        os.kill(first, signal.SIGKILL)
        assert process.stdout.readline() == "ottla: broker 1 was ended by SIGKILL\n"
        while "was started again" not in (line := process.stdout.readline()):
            assert line, "it ended instead"
        second = int((tmp_path / "broker-1" / "pid").read_text())
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        assert process.stdout.read() == "ottla: stopping\n"
    assert second != first
    assert not Path(f"/proc/{second}").exists()


def test_a_broker_that_dies_is_left_dead_if_so_wished(tmp_path: Path) -> None:
    options = ("--brokers", "1", "--port", str(free_port()), "--data", str(tmp_path), "--no-restart")
    command = [sys.executable, "-m", "ottla", "start", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        while "bootstrap servers" not in (line := process.stdout.readline()):
            assert line, "it ended instead"
        os.kill(int((tmp_path / "broker-1" / "pid").read_text()), signal.SIGKILL)
        assert process.stdout.readline() == "ottla: broker 1 was ended by SIGKILL\n"
        while not (line := process.stdout.readline()).startswith("  All of it is in "):
            assert line.startswith("  "), line
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
        assert process.stdout.read() == "ottla: stopping\n"
