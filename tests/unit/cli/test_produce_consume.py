"""ottla produce and ottla consume as processes, against a cluster none of us wrote."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ottla.base.errors import KafkaError
from ottla.cli.api_versions import broker_lines
from ottla.cli.consume import parse_start
from ottla.cli.failures import UsageError
from ottla.cli.main import main
from ottla.cli.produce import input_lines
from ottla.client.core.consumer.options import EARLIEST, LATEST
from ottla.client.core.metadata import BrokerAddress
from tests.waiting import run_async

OTTLA = [sys.executable, "-m", "ottla.cli.main"]


def produce(server: str, topic: str, text: bytes, *options: str) -> subprocess.CompletedProcess[bytes]:
    command = [*OTTLA, "produce", "--bootstrap-server", server, "--topic", topic, *options]
    return subprocess.run(command, input=text, capture_output=True, timeout=30, check=False)


def consume(server: str, topic: str, *options: str) -> subprocess.CompletedProcess[bytes]:
    command = [*OTTLA, "consume", "--bootstrap-server", server, "--topic", topic, *options]
    return subprocess.run(command, capture_output=True, timeout=30, check=False)


@pytest.mark.parametrize("options", [(), ("--sync",), ("--compression-codec",), ("--compression-codec", "zstd")])
def test_lines_come_back(mock_cluster: str, options: tuple[str, ...]) -> None:
    topic = "lines" + "".join(options)
    produced = produce(mock_cluster, topic, b"one\ntwo\r\n\nfour", *options)
    assert (produced.returncode, produced.stderr) == (0, b"")
    consumed = consume(mock_cluster, topic, "--from-beginning", "--max-messages", "4")
    assert sorted(consumed.stdout.split(b"\n")) == [b"", b"", b"four", b"one", b"two"]
    assert consumed.stderr == b"Processed a total of 4 messages\n"
    assert consumed.returncode == 0


def test_equal_keys_go_to_one_partition_and_stay_in_order(mock_cluster: str) -> None:
    text = b"".join(b"key-%d=%d\n" % (number % 3, number) for number in range(300))
    options = ("--property", "parse.key=true", "--property", "key.separator==")
    assert produce(mock_cluster, "keyed", text, *options).returncode == 0
    consumed = consume(
        mock_cluster,
        "keyed",
        *("--from-beginning", "--max-messages", "300"),
        *("--property", "print.key=true", "--property", "print.partition=true", "--property", "key.separator==="),
    )
    by_key: dict[bytes, list[tuple[bytes, int]]] = {}
    for line in consumed.stdout.splitlines():
        partition, key, value = line.split(b"==")
        by_key.setdefault(key, []).append((partition, int(value)))
    assert len(by_key) == 3
    for rows in by_key.values():
        assert len({partition for partition, _ in rows}) == 1
        assert [value for _, value in rows] == sorted(value for _, value in rows)


def test_a_bad_line_is_named(mock_cluster: str) -> None:
    done = produce(mock_cluster, "bad", b"a\tb\nno separator\n", "--property", "parse.key=true")
    assert done.returncode == 1
    assert done.stderr == b"line 2 has no key separator ('\\t')\n"


def test_nothing_comes(mock_cluster: str) -> None:
    assert produce(mock_cluster, "quiet", b"old\n").returncode == 0
    done = consume(mock_cluster, "quiet", "--timeout-ms", "100")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr == b"Processed a total of 0 messages\n"


def test_one_partition_from_an_offset(mock_cluster: str) -> None:
    assert produce(mock_cluster, "offsets", b"a\nb\nc\n").returncode == 0
    found = [
        consume(mock_cluster, "offsets", "--partition", str(partition), "--offset", "1", "--timeout-ms", "300").stdout
        for partition in range(4)
    ]
    assert b"b\nc\n" in found


def test_topics_are_chosen_by_a_pattern(mock_cluster: str) -> None:
    for name in ("some-a", "some-b"):
        assert produce(mock_cluster, name, name.encode()).returncode == 0

    def included(pattern: str) -> subprocess.CompletedProcess[bytes]:
        options = ("--from-beginning", "--max-messages", "2")
        command = [*OTTLA, "consume", "--bootstrap-server", mock_cluster, "--include", pattern, *options]
        return subprocess.run(command, capture_output=True, timeout=30, check=False)

    assert sorted(included("some-[ab]").stdout.splitlines()) == [b"some-a", b"some-b"]
    done = included("ome-.*")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"no topic matches ome-.*" in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--partition", "99"), b"topic known has no partition 99"),
        (("--partition", "0", "--offset", "5000", "--timeout-ms", "20000"), b"offset 5000 is not in known-0"),
    ],
)
def test_places_that_are_not_there(mock_cluster: str, options: tuple[str, ...], words: bytes) -> None:
    assert produce(mock_cluster, "known", b"x").returncode == 0
    done = consume(mock_cluster, "known", *options)
    assert (done.returncode, done.stdout) == (1, b"")
    assert words in done.stderr


def test_ctrl_c_ends_with_130_and_what_was_read(mock_cluster: str) -> None:
    assert produce(mock_cluster, "interrupted", b"first\n").returncode == 0
    command = [*OTTLA, "consume", "--bootstrap-server", mock_cluster, "--topic", "interrupted", "--from-beginning"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"first\n"
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=10)
    assert (process.returncode, error) == (130, b"Processed a total of 1 messages\n")


def test_ctrl_c_ends_a_producer_that_waits_for_input(mock_cluster: str) -> None:
    command = [*OTTLA, "produce", "--bootstrap-server", mock_cluster, "--topic", "waiting"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"x\n")
    process.stdin.flush()
    deadline = time.monotonic() + 20
    while consume(mock_cluster, "waiting", "--from-beginning", "--timeout-ms", "200").stdout != b"x\n":
        assert time.monotonic() < deadline
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=10) == 130
    process.stdin.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["consume"], "either a --topic or topics to --include"),
        (["consume", "--topic", "t", "--offset", "1"], "--offset needs --partition"),
        (["consume", "--include", "("], "not a regular expression"),
        (["consume", "--topic", "t", "--property", "print.keys=true"], "did you mean print.key?"),
        (["produce", "--topic", "t", "--compression-codec", "rar"], "'rar' is not one of none, gzip"),
        (["produce", "--topic", "t", "--request-required-acks", "2"], "'2' is not one of all"),
        (["produce", "--topic", "t", "--property", "x"], "name=value"),
    ],
)
def test_options_that_make_no_sense_are_one_sentence(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert words in capsys.readouterr().err.splitlines()[-1]


def test_where_to_start() -> None:
    assert parse_start(None, None, from_beginning=False) == LATEST
    assert parse_start(None, None, from_beginning=True) == EARLIEST
    assert parse_start("earliest", 0, from_beginning=False) == EARLIEST
    assert parse_start("12", 0, from_beginning=False) == 12
    with pytest.raises(UsageError, match="neither a number"):
        parse_start("-5", 0, from_beginning=False)


def collect(fd: int) -> list[bytes]:
    async def all_lines() -> list[bytes]:
        return [line async for lines in input_lines(fd) for line in lines]

    return run_async(all_lines())


@pytest.mark.parametrize(
    ("text", "expected"),
    [(b"", []), (b"a", [b"a"]), (b"a\n", [b"a"]), (b"a\n\nb\r\nc", [b"a", b"", b"b", b"c"])],
)
def test_lines_of_files_and_pipes(text: bytes, expected: list[bytes], tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(text)
    with path.open("rb") as file:
        assert collect(file.fileno()) == expected
    reading, writing = os.pipe()
    os.write(writing, text)
    os.close(writing)
    assert collect(reading) == expected
    os.close(reading)


def test_lines_longer_than_what_is_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"x" * 200_000 + b"\ny")
    with path.open("rb") as file:
        assert collect(file.fileno()) == [b"x" * 200_000, b"y"]


def test_api_versions_in_kafkas_form() -> None:
    broker = BrokerAddress(1, "h", 9092, None)
    lines = list(broker_lines(broker, {0: range(3, 13), 18: range(1), 999: range(2)}))
    assert lines[0] == "h:9092 (id: 1 rack: null) -> ("
    assert "\tProduce(0): 3 to 12 [usable: 12]," in lines
    assert "\tApiVersions(18): 0 [usable: 0]," in lines
    assert "\tFetch(1): UNSUPPORTED," in lines
    assert lines[-2:] == ["\tUnknown(999): 0 to 1 [usable: none]", ")"]
    assert list(broker_lines(broker, KafkaError("gone"))) == ["h:9092 (id: 1 rack: null) -> ERROR: gone"]


def test_a_person_is_prompted_for_every_line_and_a_pipe_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"a\nb\n")

    async def all_lines(prompt: bool) -> list[bytes]:
        with path.open("rb") as file:
            return [line async for lines in input_lines(file.fileno(), prompt=prompt) for line in lines]

    for prompt, shown in ((True, ">>"), (False, "")):
        assert run_async(all_lines(prompt)) == [b"a", b"b"]
        assert capsys.readouterr().out == shown, "once for the lines, once for the end"
