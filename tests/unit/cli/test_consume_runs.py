"""`ottla consume` at work: where it starts, what it prints and when it ends. The consumer is the test's own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Self

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.cli.consume import _run, _settings, parser
from ottla.cli.kafka_names.scripts import run_script
from ottla.cli.main import main
from ottla.client.aio.consumer import consumer as real
from ottla.client.core.consumer.record import make_record_class
from ottla.client.errors import ClientError, OffsetOutOfRangeError
from ottla.records.batch import TimestampType
from tests.own_thread import patch_own_thread
from tests.waiting import run_async

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
SERVER = ("--bootstrap-server", "h:1")
Said = tuple[int, str, str]


class Consumer:
    """Topics t and u. The clock moves when somebody polls, by as much as is waited for."""

    def __init__(self) -> None:
        self.config: dict[str, str] = {}
        self.assigned: list[TopicPartition] = []
        self.subscribed: list[str] = []
        self.places: dict[TopicPartition, int] = {}
        self.polls: list[Any] = []
        """What comes, one after the other: records, or an error; then nothing for ever."""
        self.asked: list[tuple[float, int]] = []
        self.topics = {"t": [0, 1], "u": [0]}
        self.refusal: KafkaError | None = None
        self.first = {T0: 3, T1: 0, U0: 7}
        self.end = {T0: 10, T1: 2, U0: 7}
        self.now = 0.0

    def open(self, config: dict[str, str]) -> Self:
        self.config = config
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def list_topics(self) -> dict[str, list[Any]]:
        return {name: self._infos(name) for name in reversed(self.topics)}

    def _infos(self, topic: str) -> list[Any]:
        return [SimpleNamespace(partition=number) for number in self.topics[topic]]

    async def partitions_for(self, topic: str) -> list[Any]:
        if self.refusal is not None:
            raise self.refusal
        return self._infos(topic) if topic in self.topics else []

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.assigned = partitions

    def subscribe(self, topics: list[str]) -> None:
        self.subscribed = topics

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.places[partition] = offset

    async def offsets_for_times(self, times: dict[TopicPartition, int]) -> dict[TopicPartition, Any]:
        self.times = times
        return {T0: SimpleNamespace(offset=6), T1: None}

    async def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.first[partition] for partition in partitions}

    async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.end[partition] for partition in partitions}

    async def poll(self, timeout_s: float, max_records: int) -> list[Any]:
        self.asked.append((timeout_s, max_records))
        self.now += timeout_s
        found = self.polls.pop(0) if self.polls else []
        if isinstance(found, BaseException):
            raise found
        return list(found)


OF_T0 = make_record_class("t", 0, TimestampType.CREATE_TIME, None)


def record(value: bytes | None, key: bytes | None = None, offset: int = 0) -> Any:
    return OF_T0(offset, 5, key, value, ())


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Consumer:
    made = Consumer()
    monkeypatch.setattr(real, "Consumer", made.open)
    running_loop = asyncio.get_running_loop

    def with_own_clock() -> Any:
        loop = running_loop()
        loop.time = lambda: made.now  # type: ignore[method-assign]
        return loop

    patch_own_thread(monkeypatch, asyncio, "get_running_loop", with_own_clock)
    return made


@pytest.fixture
def run(consumer: Consumer, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    def said(*arguments: str, kafka: bool = False) -> Said:
        given = [*arguments, *SERVER]
        code = run_script("kafka-console-consumer.sh", given) if kafka else main(["consume", *given])
        told = capsys.readouterr()
        return code, told.out, told.err

    return said


NOTHING = (0, "", "Processed a total of 0 messages\n")
AT_ONCE = ("--max-messages", "0")


# Where it starts


@pytest.mark.parametrize(
    ("arguments", "assigned", "places"),
    [
        (["t"], [T0, T1], {}),
        (["t", "--from-beginning"], [T0, T1], {}),
        (["t", "--partition", "1"], [T1], {}),
        (["t", "--partition", "1", "--offset", "0"], [T1], {T1: 0}),
        (["t", "--partition", "0", "--offset", "5"], [T0], {T0: 5}),
        (["t", "--partition", "0", "--offset", "earliest"], [T0], {}),
        (["--include", "t|u"], [T0, T1, U0], {}),
        (["--include", "[a-t]"], [T0, T1], {}),
        (["t", "--from-time", "1970-01-01T00:00:09"], [T0, T1], {T0: 6, T1: 2}),
        (["--include", ".", "--tail", "5"], [T0, T1, U0], {T0: 5, T1: 0, U0: 7}),
        (["t", "--tail", "0"], [T0, T1], {T0: 10, T1: 2}),
        (["t", "--tail", "7", "--partition", "0"], [T0], {T0: 3}),
    ],
)
def test_where_reading_starts(
    run: Callable[..., Said],
    consumer: Consumer,
    arguments: list[str],
    assigned: list[TopicPartition],
    places: dict[TopicPartition, int],
) -> None:
    assert run(*arguments, *AT_ONCE) == NOTHING
    assert (consumer.assigned, consumer.places, consumer.subscribed) == (assigned, places, [])
    if "--from-time" in arguments:
        assert consumer.times == {T0: 9000, T1: 9000}


def test_a_group_divides_topics_among_its_members(run: Callable[..., Said], consumer: Consumer) -> None:
    assert run("t", "--group", "g", *AT_ONCE) == NOTHING
    assert (consumer.subscribed, consumer.assigned, consumer.config["group.id"]) == (["t"], [], "g")
    assert run("--include", "t|u", "--group", "g", *AT_ONCE) == NOTHING
    assert consumer.subscribed == ["t", "u"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["tt"], "topic 'tt' does not exist; did you mean 't'?"),
        (["tt", "--group", "g"], "topic 'tt' does not exist; did you mean 't'?"),
        (["--include", "x.*"], "no topic matches x.*"),
        (["--include", "x.*", "--group", "g"], "no topic matches x.*"),
        (["t", "--partition", "2"], "topic t has no partition 2"),
    ],
)
def test_what_is_not_there_is_not_waited_for(
    run: Callable[..., Said], consumer: Consumer, arguments: list[str], told: str
) -> None:
    assert run(*arguments, *AT_ONCE) == (1, "", f"{told}\n")
    assert consumer.asked == []


@pytest.mark.parametrize(
    ("arguments", "refusal", "code", "told"),
    [
        (("t",), ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic t: no"),
        (
            ("tt",),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "topic 'tt' does not exist; did you mean 't'?",
        ),
        (("--include", "x"), None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic matches x"),
        (("t", "--partition", "2"), None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic t has no partition 2"),
    ],
)
def test_each_refusal_has_its_code(
    consumer: Consumer, arguments: tuple[str, ...], refusal: ErrorCode | None, code: ErrorCode, told: str
) -> None:
    consumer.refusal = None if refusal is None else ClientError("no", code=refusal)
    made = parser()
    options = made.read([*arguments, *SERVER])
    made.take_topic(options)
    with pytest.raises(KafkaError) as error:
        run_async(_run(_settings(options)))
    assert (error.value.code, error.value.message) == (code, told)


# What it prints


def test_it_ends_when_enough_is_printed(run: Callable[..., Said], consumer: Consumer) -> None:
    consumer.polls = [[record(b"a"), record(b"b")], [], [record(b"c")]]
    assert run("t", "--max-messages", "3") == (0, "a\nb\nc\n", "Processed a total of 3 messages\n")
    assert consumer.asked == [(0.5, 3), (0.5, 1), (0.5, 1)]
    consumer.polls = [[record(b"a")] * 10_000, [record(b"b")]]
    assert run("t", "--max-messages", "10001")[2] == "Processed a total of 10001 messages\n"
    assert consumer.asked[3:] == [(0.5, 10_000), (0.5, 1)]


def test_only_what_matches_is_printed_and_counted(run: Callable[..., Said], consumer: Consumer) -> None:
    consumer.polls = [[record(b"a-x"), record(b"b", b"x"), record(b"c"), record(None)], [record(None, b"d-x")]]
    printed = "a-x\nb\nnull\n"
    assert run("t", "--grep", "x$", "--max-messages", "3") == (0, printed, "Processed a total of 3 messages\n")


def test_it_ends_when_nothing_comes_for_long_enough(run: Callable[..., Said], consumer: Consumer) -> None:
    consumer.polls = [[], [], [record(b"a")], []]
    code, printed, error = run("t", "--timeout-ms", "1250")
    assert (code, printed, error) == (0, "a\n", "Processed a total of 1 messages\n")
    waits = [wait for wait, _ in consumer.asked]
    assert waits == [0.5, 0.5, 0.25, 0.5, 0.5, 0.25]
    assert {room for _, room in consumer.asked} == {10_000}


def test_kafkas_tool_tells_of_its_patience(run: Callable[..., Said], consumer: Consumer) -> None:
    code, _, error = run("--topic", "t", "--timeout-ms", "250", kafka=True)
    assert code == 0
    assert error.splitlines() == [
        "ERROR Error processing message, terminating consumer process:  "
        "(org.apache.kafka.tools.consumer.ConsoleConsumer)",
        "org.apache.kafka.common.errors.TimeoutException",
        "Processed a total of 0 messages",
    ]


def test_ctrl_c_is_how_most_end_it(consumer: Consumer, capsys: pytest.CaptureFixture[str]) -> None:
    consumer.polls = [[record(b"a")], asyncio.CancelledError()]
    made = parser()
    options = made.read(["t", *SERVER, "--enable-systest-events"])
    made.take_topic(options)
    with pytest.raises(asyncio.CancelledError):
        run_async(_run(_settings(options)))
    said = capsys.readouterr()
    assert (said.out, said.err) == ("a\n", "Processed a total of 1 messages\n")


def test_what_is_printed_arrives_with_each_poll(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    arrived: list[bytes] = []
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8"))
    poll = consumer.poll

    async def noting(timeout_s: float, max_records: int) -> list[Any]:
        arrived.append(raw.getvalue())
        return await poll(timeout_s, max_records)

    monkeypatch.setattr(consumer, "poll", noting)
    consumer.polls = [[record(b"a")], [record(b"b")]]
    assert main(["consume", "t", "--max-messages", "2", *SERVER]) == 0
    assert arrived == [b"", b"a\n"] and raw.getvalue() == b"a\nb\n"


@pytest.mark.parametrize(
    ("partition", "there"),
    [(T0, "has 3 to 9"), (U0, "is empty and goes on with 7")],
)
def test_an_offset_that_is_not_there_is_told_with_what_is(
    run: Callable[..., Said], consumer: Consumer, partition: TopicPartition, there: str
) -> None:
    consumer.polls = [OffsetOutOfRangeError("gone", topic_partition=partition, offset=77)]
    assert run("t", "--partition", "0", "--offset", "77") == (
        1,
        "",
        f"offset 77 is not in {partition}, which {there}\n",
    )


def test_a_record_that_cannot_be_shown(run: Callable[..., Said], consumer: Consumer) -> None:
    polls = [[record(b"1234", offset=8), record(bytes(4), offset=9)]]
    numbers = ("t", "--value-deserializer", "short", "--max-messages", "2")
    told = "t-0, offset 8: 4 bytes are no short, which has 2"
    consumer.polls = [*polls]
    assert run(*numbers) == (1, "", f"{told}; --skip-message-on-error leaves such records out\n")
    consumer.polls = [*polls]
    code, printed, error = run(*numbers, "--skip-message-on-error")
    assert (code, printed) == (0, "")
    assert error.splitlines() == [told, told.replace("8", "9"), "Processed a total of 2 messages"]
