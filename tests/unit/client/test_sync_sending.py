"""The producer for threads without its thread: how long it waits for it, and what it does when there is no waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

import ottla
from ottla.client.core.producer.batch import Batch
from ottla.client.core.producer.options import ProducerSettings
from ottla.client.errors import BufferExhaustedError, ClientClosedError, ClientError
from ottla.client.sync.producer import sending
from tests.log_lines import messages_of
from tests.waiting import run_async


class Thread:
    """Runs what it is given on the spot, and notes how long that was to be waited for."""

    def __init__(self) -> None:
        self.is_current = False
        self.waited_s: list[float | None] = []
        self.stopped = 0

    def call(self, work: Coroutine[Any, Any, Any], timeout_s: float | None = None) -> Any:
        self.waited_s.append(timeout_s)
        return run_async(work)

    def stop(self) -> None:
        self.stopped += 1


class Memory:
    """A condition whose time passes at once: told as often as a test says, and then never again."""

    def __init__(self, clock: Clock, *told_ms: int) -> None:
        self.clock = clock
        self.told_ms = list(told_ms)
        self.waited_s: list[float] = []

    def wait(self, timeout_s: float) -> bool:
        self.waited_s.append(timeout_s)
        if self.told_ms:
            self.clock.now_ms = self.told_ms.pop(0)
            return True
        self.clock.now_ms += int(timeout_s * 1000)
        return False

    def notify_all(self) -> None: ...


class Clock:
    now_ms = 1000

    def monotonic_ms(self) -> int:
        return self.now_ms


class Engine:
    def __init__(self) -> None:
        self.clock = Clock()
        self.calls: list[str] = []
        self.flush_takes_s = 0.0
        self.sender = SimpleNamespace(fatal_error=None, fail_all=self._fail_all)
        self.finished: list[object] = []

    def _fail_all(self, error: ClientError) -> list[object]:
        self.calls.append(f"fail all: {error.message}")
        return ["left"]

    def finish(self, batches: list[object]) -> None:
        self.finished += batches

    def wake_from_thread(self) -> None:
        self.calls.append("wake")

    def wake(self) -> None:
        self.calls.append("wake in loop")

    def why_waiting(self) -> str:
        return "cannot reach x:1: refused"

    def take_no_more(self) -> None:
        self.calls.append("take no more")

    def close(self) -> None:
        self.calls.append("close")

    async def flush(self) -> None:
        self.calls.append("flush")
        await asyncio.sleep(self.flush_takes_s)


def producer(*told_ms: int) -> Any:
    made: Any = ottla.Producer.__new__(ottla.Producer)
    made._settings = ProducerSettings.parse({"bootstrap.servers": "x:1", "max.block.ms": 500, "buffer.memory": 99})
    made._engine = Engine()
    made._thread = Thread()
    made._lock = threading.Lock()
    made._memory = Memory(made._engine.clock, *told_ms)
    made._unusable = made._choosing = made._transaction = made._transactions = None
    made._accumulator = SimpleNamespace(
        waiting=0, incomplete=[], close_open=lambda: made._engine.calls.append("close open"), repaired=0
    )
    made._accumulator.repair = lambda: made._engine.calls.append("repair")
    return made


# Memory


def test_a_thread_waits_until_there_is_room_or_its_time_is_up() -> None:
    made = producer(1100, 1350)
    tries: list[int] = []

    def append(now_ms: int) -> str | None:
        tries.append(now_ms)
        assert made._accumulator.waiting == (1 if len(tries) > 1 else 0)
        return "place" if now_ms == 1350 else None

    assert made._append(append) == "place"
    assert tries == [1000, 1100, 1350]
    assert made._memory.waited_s == [0.5, 0.4] and made._engine.calls == ["wake", "wake"]
    assert made._accumulator.waiting == 0
    late = producer(1100)
    with pytest.raises(BufferExhaustedError) as exhausted:
        late._append(lambda now_ms: None)
    assert exhausted.value.message == (
        "the buffer of 99 bytes (buffer.memory) stayed full for 500 ms (max.block.ms): cannot reach x:1: refused"
    )
    assert late._memory.waited_s == [0.5, 0.4] and late._accumulator.waiting == 0
    assert late._engine.calls == ["wake", "wake"], "nothing was torn apart"
    too_late = producer(1600)
    with pytest.raises(BufferExhaustedError):
        too_late._append(lambda now_ms: None)
    assert too_late._memory.waited_s == [0.5, 0.0]


def test_a_thread_that_waits_for_memory_hears_that_the_producer_is_closed() -> None:
    made = producer(1100)

    def append(now_ms: int) -> None:
        made._unusable = ClientClosedError("the producer is closed")

    with pytest.raises(ClientClosedError, match="the producer is closed"):
        made._append(append)
    assert made._accumulator.waiting == 0
    with pytest.raises(ClientClosedError):
        made._append(lambda now_ms: "place")


def test_a_callback_does_not_wait_for_memory() -> None:
    made = producer()
    made._thread.is_current = True
    with pytest.raises(BufferExhaustedError) as refused:
        made._append(lambda now_ms: None)
    assert refused.value.message == "the buffer is full, and a delivery callback cannot wait until it is not"
    assert made._append(lambda now_ms: "place") == "place"
    assert made._memory.waited_s == []


@pytest.mark.parametrize(
    ("error", "is_repaired"), [(KeyboardInterrupt(), True), (ZeroDivisionError(), True), (ClientError("no"), False)]
)
def test_what_was_torn_apart_is_put_together_again(error: BaseException, is_repaired: bool) -> None:
    made = producer()

    def append(now_ms: int) -> None:
        raise error

    with pytest.raises(type(error)):
        made._append(append)
    assert made._engine.calls == (["repair", "wake"] if is_repaired else [])
    assert not made._lock.locked()


# Topics


@pytest.mark.parametrize(
    ("partition", "missing"), [(None, "topic t"), (0, "partition 0 of topic t"), (3, "partition 3 of topic t")]
)
def test_a_callback_does_not_wait_for_a_topic(partition: int | None, missing: str) -> None:
    made = producer()
    made._thread.is_current = True
    with pytest.raises(BufferExhaustedError) as refused:
        made._wait_for_topic("t", partition)
    assert refused.value.message == f"{missing} is not known yet, and a delivery callback cannot wait until it is"
    assert made._engine.calls == ["wake in loop"], "the next one shall find it"


def test_a_topic_that_is_known_is_not_waited_for() -> None:
    made = producer()
    asked: list[tuple[object, ...]] = []
    found: list[str | None] = ["known", None]

    def find(*arguments: object) -> str | None:
        asked.append(arguments)
        return found.pop(0)

    async def topic(*arguments: object) -> str:
        asked.append(arguments)
        return "learnt"

    made._engine.metadata = SimpleNamespace(find=find)
    made._engine.topic = topic
    assert made._find_topic("t", 3) == "known" and asked == [("t", 1000, 3)]
    assert made._find_topic("t") == "learnt" and asked[1:] == [("t", 1000, None), ("t", 500, None)]


# Flushing and the end


@pytest.mark.parametrize(("timeout", "waited_s"), [(0.9, 1.0), (0.5, 1.0), (1.0, 1.0), (7.0, 7.0)])
def test_a_flush_waits_a_second_for_the_thread_at_least(timeout: float, waited_s: float) -> None:
    made = producer()
    made.flush(timeout)
    assert made._thread.waited_s == [waited_s] and made._engine.calls == ["flush"]


def test_a_flush_that_is_late_says_why() -> None:
    made = producer()
    made._engine.flush_takes_s = 60.0
    with pytest.raises(TimeoutError) as late:
        made.flush(0.01)
    words = "not every record was acknowledged within 0.01 s; last: cannot reach x:1: refused"
    assert str(late.value) == words
    made._unusable = ClientClosedError("the producer is closed")
    with pytest.raises(ClientClosedError):
        made.flush()


@pytest.mark.parametrize("is_late", [False, True])
def test_closing_sends_what_is_left_and_fails_the_rest(is_late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten: list[object] = []
    monkeypatch.setattr(sending, "forget_exit", forgotten.append)
    made = producer()
    if is_late:

        async def late() -> None:
            raise TimeoutError

        made._engine.flush = late
    made.close(3.0)
    made.close(3.0)
    flush = [] if is_late else ["flush"]
    closed = "fail all: the producer was closed before the record was sent"
    assert made._engine.calls == ["close open", "take no more", *flush, closed, "close"]
    assert made._engine.finished == ["left"] and made._thread.stopped == 1 and forgotten == [made]
    assert made._thread.waited_s == [3.0, None]
    with pytest.raises(ClientClosedError, match="the producer is closed"):
        made._check_usable()


def test_closing_in_a_callback_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "forget_exit", lambda producer: None)
    made = producer()
    made._thread.is_current = True
    made.close()
    closed = "fail all: the producer was closed before the record was sent"
    assert made._engine.calls == ["close open", closed, "close"]
    assert made._thread.waited_s == [] and made._thread.stopped == 1


def test_a_transaction_is_ended_before_the_rest_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "forget_exit", lambda producer: None)
    made = producer()

    async def close() -> None:
        made._engine.calls.append("transactions")

    made._transactions = SimpleNamespace(close=close)
    made.close()
    assert made._engine.calls[1:4] == ["take no more", "transactions", "flush"]


@pytest.mark.parametrize("timeout_s", [0.1, 5.0])
def test_what_is_left_at_the_end_of_the_program_is_sent_or_told_of(
    timeout_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    made = producer()
    made._send_rest(timeout_s)
    assert made._thread.waited_s == [], "there is nothing"
    left = Batch("t", 0, (0,), opened_ms=0, deadline_ms=1)
    for value in (b"a", b"b"):
        left.add((None, value, (), 0), 20)
    made._accumulator.incomplete = [left]
    for state in ("_transaction", "_unusable"):
        setattr(made, state, ClientClosedError("the producer is closed"))
        made._send_rest(timeout_s)
        setattr(made, state, None)
    assert made._thread.waited_s == [], "nobody has committed it; or it has failed already"
    made._send_rest(timeout_s)
    assert made._thread.waited_s == [max(1.0, timeout_s)] and made._engine.calls == ["flush"]
    assert made._unusable is None, "threads may go on sending"
    told = "records not sent, because the program ended before the producer was closed: 2"
    assert messages_of(caplog, "ottla.client.interrupts") == [told]


def test_a_fork_leaves_a_producer_that_was_just_being_made_unusable() -> None:
    made: Any = ottla.Producer.__new__(ottla.Producer)
    made._forked()
    assert made._lanes == {} and "create a new one after fork, in the child" in made._unusable.message
