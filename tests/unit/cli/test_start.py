"""ottla start: which options belong together, and what a cluster's brokers are started with."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from ottla.base.errors import StartError
from ottla.broker.config.broker_config import BrokerConfig
from ottla.cli import local_cluster, start
from ottla.cli.local_cluster import ClusterOptions
from ottla.cli.supervised import Program, _ending, _SupervisedProcess
from tests.ports import free_port
from tests.waiting import PATIENCE_S, run_async


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


@pytest.mark.parametrize("serves_store", [False, True])
def test_all_brokers_of_a_cluster_are_looked_after_together(
    serves_store: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[list[str], bool]] = []

    async def supervise(programs: list[Program], *, restarts: bool, announce: Callable[[], None]) -> None:
        asked.append(([program.name for program in programs], restarts))
        announce()

    monkeypatch.setattr(local_cluster, "supervise", supervise)
    for restarts in (True, False):  # The first has left its directory when it ended.
        options = ClusterOptions(3, 9300, tmp_path / "here", restarts, serves_store=serves_store)
        assert local_cluster.run_cluster(options) == 0
        assert capsys.readouterr().out.splitlines() == [
            "ottla: broker 1 is listening on 127.0.0.1:9300",
            "ottla: broker 2 is listening on 127.0.0.1:9301",
            "ottla: broker 3 is listening on 127.0.0.1:9302",
            f"ottla: a cluster of 3 brokers, data and logs in {tmp_path / 'here'}; Ctrl-C stops it",
            "ottla: bootstrap servers: 127.0.0.1:9300,127.0.0.1:9301,127.0.0.1:9302",
        ]
    assert asked == [(["broker 1", "broker 2", "broker 3"], restarts) for restarts in (True, False)]


@pytest.mark.parametrize("serves_store", [False, True])
def test_the_program_of_a_broker(serves_store: bool, tmp_path: Path) -> None:
    program = local_cluster._broker(3, ClusterOptions(3, 9300, tmp_path, True, ["a=b"], serves_store=serves_store))
    place = tmp_path / "broker-3"
    assert (program.name, program.directory, program.log_file) == ("broker 3", place, tmp_path / "broker-3.log")
    assert not program.dies_with_parent, "it notices by itself"
    settings = [
        *("controlled.shutdown.retry.backoff.ms=200", "a=b", "broker.id=3", "listeners=PLAINTEXT://127.0.0.1:9302"),
        *(f"log.dirs={place}", *([f"ottla.cluster.dir={tmp_path}"] if serves_store else [])),
    ]
    words = [word for setting in settings for word in ("--override", setting)]
    assert program.command == [sys.executable, "-m", "ottla", "start", *words]


@pytest.mark.parametrize(
    "lines", [[b"is listening on x\n"], [b"starting\n", b"broker 1 is listening on x\n", b"more"], [b"a"]]
)
def test_a_broker_is_there_when_it_says_so(lines: list[bytes]) -> None:
    async def test() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(b"".join(lines))
        reader.feed_eof()
        await local_cluster._until_listening(SimpleNamespace(stdout=reader))  # type: ignore[arg-type]
        assert await reader.read() == b"".join(lines[2:])

    if lines == [b"a"]:
        with pytest.raises(EOFError):
            run_async(test())
    else:
        run_async(test())


def test_one_broker_is_run_with_what_was_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran: list[BrokerConfig] = []

    def run(config: BrokerConfig) -> int:
        ran.append(config)
        return 5

    monkeypatch.setattr("ottla.broker.app.run_broker", run)
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=3\nlog.retention.hours=7\n")
    words = ["--override", "num.partitions=2", "--log-level", "WARN", "--log-level", "a=DEBUG"]
    assert start.main([str(file), *words]) == 5
    assert start.main([]) == 5
    told, plain = ran
    assert (told["num.partitions"], told["log.retention.hours"]) == (2, 7)
    assert told["ottla.log.level"] == ("WARN", "a=DEBUG")
    assert plain["num.partitions"] == 1


def test_a_broker_that_cannot_start_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(config: BrokerConfig) -> int:
        raise StartError("the port is taken")

    monkeypatch.setattr("ottla.broker.app.run_broker", run)
    assert start.main([]) == 1
    assert capsys.readouterr().err == "the port is taken\n"


def test_with_a_zookeeper_no_store_is_served(asked_for: list[ClusterOptions]) -> None:
    assert start.main(["--brokers", "2", "--override", "zookeeper.connect=z:1"]) == 7
    assert start.main(["--brokers", "2"]) == 7
    assert [options.serves_store for options in asked_for] == [False, True]


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        start.main([flag])
    assert end.value.code == 0
    assert capsys.readouterr().out == start.HELP
