"""`ottla produce` at work: lines of standard input, and a producer of the test's own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import pytest

from ottla.base.errors import ErrorCode
from ottla.cli.kafka_names.scripts import run_script
from ottla.cli.main import main
from ottla.cli.produce import input_lines
from ottla.client.aio.producer import producer as real
from ottla.client.errors import ClientError
from tests.unit.cli.scripted import Pipe
from tests.waiting import run_async

Said = tuple[int, str]
Run = Callable[..., Said]
SERVER = ("--bootstrap-server", "h:1")


class Producer:
    """Stores what was sent when somebody awaits it, or all at once with `flush`."""

    def __init__(self) -> None:
        self.config: dict[str, str] = {}
        self.events: list[Any] = []
        self.records: list[tuple[Any, ...]] = []
        self.failure: ClientError | None = None
        self.unknown: ClientError | None = None

    def open(self, config: dict[str, str]) -> Producer:
        self.config = config
        return self

    async def start(self) -> None:
        self.events.append("start")

    async def partitions_for(self, topic: str) -> list[int]:
        if self.unknown is not None:
            raise self.unknown
        return [0]

    async def send(self, topic: str, value: bytes | None, key: bytes | None, headers: Any) -> Any:
        self.records.append((topic, value, key, headers))
        self.events.append("send")

        async def stored() -> None:
            self.events.append("stored")
            if self.failure is not None:
                raise self.failure

        return asyncio.ensure_future(stored())

    async def flush(self) -> None:
        self.events.append("flush")

    async def close(self, timeout_s: float) -> None:
        self.events.append(("close", timeout_s))


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> Producer:
    made = Producer()
    monkeypatch.setattr(real, "Producer", type("Made", (), {"__new__": lambda _, config: made.open(config)}))
    return made


@pytest.fixture
def run(producer: Producer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def with_input(text: bytes, *arguments: str, kafka: bool = False) -> Said:
        path = tmp_path / "input"
        path.write_bytes(text)
        with path.open() as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            given = [*arguments, *SERVER]
            if kafka:
                code = run_script("kafka-console-producer.sh", given)
            else:
                code = main(["produce", *given])
        return code, capsys.readouterr().err

    return with_input


def test_lines_become_records(run: Run, producer: Producer) -> None:
    properties = ("--property", "parse.key=true", "--property", "parse.headers=true")
    assert run(b"h:1\tk\tv\nh:2,i:3\tl\tw", "t", *properties) == (0, "")
    assert producer.records == [("t", b"v", b"k", [("h", b"1")]), ("t", b"w", b"l", [("h", b"2"), ("i", b"3")])]
    assert producer.config["bootstrap.servers"] == "h:1"


def test_records_travel_together_unless_each_is_waited_for(run: Run, producer: Producer) -> None:
    assert run(b"a\nb\n", "t") == (0, "")
    assert producer.events == ["start", "send", "send", "flush", "stored", "stored", ("close", 0)]
    producer.events.clear()
    assert run(b"a\nb\n", "t", "--sync") == (0, "")
    assert producer.events == ["start", "send", "stored", "send", "stored", "flush", ("close", 0)]


def test_a_record_that_is_not_stored_ends_it(run: Run, producer: Producer) -> None:
    producer.failure = ClientError("too large", code=ErrorCode.MESSAGE_TOO_LARGE)
    assert run(b"a\nb\n", "t") == (1, "too large\n")
    assert producer.events[-1] == ("close", 0)


def test_nothing_is_read_for_a_topic_that_is_not_there(run: Run, producer: Producer) -> None:
    producer.unknown = ClientError("no t", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert run(b"a\n", "t") == (1, "no t\n")
    assert producer.events == ["start", ("close", 0)]


def test_a_line_that_does_not_fit_takes_nothing_back_of_those_before_it(run: Run, producer: Producer) -> None:
    keyed = ("--property", "parse.key=true", "--property", "key.separator=:")
    good = b"".join(b"%d:%s\n" % (number, bytes(1000)) for number in range(200))
    code, error = run(good + b"none\n1:2\n", "t", *keyed)
    assert (code, error) == (1, "line 201 has no key separator (':')\n")
    assert [int(record[2]) for record in producer.records] == list(range(200))
    assert producer.events.count("flush") > 3 and producer.events[-1] == ("close", 0)
    code, error = run(b"1:2\nnone\n", "--topic", "t", *keyed, kafka=True)
    assert (code, error) == (
        1,
        "org.apache.kafka.common.KafkaException: No key separator found on line number 2: 'none'\n",
    )


@pytest.mark.parametrize(
    "option",
    [
        *("--message-send-max-retries", "--retry-backoff-ms", "--metadata-expiry-ms", "--max-memory-bytes"),
        *("--max-partition-memory-bytes", "--socket-buffer-size"),
    ],
)
def test_options_of_old_runbooks_say_nothing(run: Run, producer: Producer, option: str) -> None:
    assert run(b"a\n", "t", option, "1") == (0, "")
    assert len(producer.records) == 1


def test_a_prompt_is_seen_before_the_line_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Pipe()
    monkeypatch.setattr(sys, "stdout", pipe)
    path = tmp_path / "input"
    path.write_bytes(b"a\n")

    async def first(file: TextIO) -> list[bytes]:
        async for lines in input_lines(file.fileno(), prompt=True):
            assert pipe.arrived == ">"
            return lines
        return []

    with path.open() as file:
        assert run_async(first(file)) == [b"a"]
