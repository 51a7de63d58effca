"""Tasks that send records of one producer: who waits for whom, and what interceptors and serializers see of it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from ottla import aio
from ottla.base.errors import ErrorCode
from ottla.client.aio.producer.send_lines import SendLines
from ottla.client.core.producer.record_intake import ProducerRecord
from ottla.errors import BufferExhaustedError, ClientClosedError, ClientError
from tests.waiting import PATIENCE_S, run_async, until

from .test_producer_answers import TOPIC, world


class Watching:
    """An interceptor that notes what becomes of records."""

    def __init__(self) -> None:
        self.fates: list[tuple[int | None, ErrorCode | None]] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record

    def on_acknowledgement(self, metadata: Any, error: ClientError | None) -> None:
        self.fates.append((metadata and metadata.offset, error and error.code))


def test_interceptors_hear_of_every_fate_once() -> None:
    async def scenario() -> None:
        watching = [Watching(), Watching()]
        async with world() as here:
            own = {"bootstrap_servers": here.broker.address, "linger_ms": 0, "max_request_size": 500}
            async with aio.Producer(**own, interceptors=watching) as producer:  # type: ignore[arg-type]
                assert (await producer.send_and_wait(TOPIC, b"x")).offset == 40
                here.produce_codes = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
                with pytest.raises(ClientError):
                    await producer.send_and_wait(TOPIC, b"y", b"key")
                with pytest.raises(ClientError):
                    await producer.send(TOPIC, bytes(501))
        for one in watching:
            assert one.fates == [
                (40, None),
                (None, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
                (None, ErrorCode.MESSAGE_TOO_LARGE),
            ]

    run_async(scenario())


class Asking:
    """A serializer that has to ask somebody for large numbers, who takes his time."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.threads: set[int] = set()

    def waits_to_serialize(self, topic: str, value: int | None) -> bool:
        return value is not None and value > 9

    def serialize(self, topic: str, value: int | None) -> bytes:
        if self.waits_to_serialize(topic, value):
            self.threads.add(threading.get_ident())
            assert self.may_answer.wait(PATIENCE_S)
        return b"%d" % (value or 0)


def test_no_record_overtakes_one_whose_serializer_waits() -> None:
    async def scenario() -> None:
        asking = Asking()
        sent: list[int] = []
        async with (
            world() as here,
            aio.Producer(bootstrap_servers=here.broker.address, value_serializer=asking) as producer,
        ):

            async def send(number: int) -> None:
                await producer.send(TOPIC, number)
                sent.append(number)

            await send(1)
            tasks = [asyncio.create_task(send(number)) for number in (10, 2, 3)]
            await until(lambda: bool(asking.threads))
            assert sent == [1], "the loop goes on, and who came later waits"
            asking.may_answer.set()
            await asyncio.gather(*tasks)
            assert sent == [1, 10, 2, 3]
            assert threading.get_ident() not in asking.threads

    run_async(scenario())


def test_a_producer_that_is_closed_while_a_serializer_waits_takes_nothing() -> None:
    async def scenario() -> None:
        asking = Asking()
        async with world() as here:
            producer = aio.Producer(bootstrap_servers=here.broker.address, value_serializer=asking)
            await producer.start()
            await producer.send(TOPIC, 1)
            waiting = [asyncio.create_task(producer.send(TOPIC, number)) for number in (10, 2)]
            await until(lambda: bool(asking.threads))
            await producer.close()
            asking.may_answer.set()
            for task in waiting:
                with pytest.raises(ClientClosedError, match="the producer is closed"):
                    await task

    run_async(scenario())


# Lines


def test_who_waits_for_a_topic_is_overtaken_by_nobody_until_all_have_gone() -> None:
    async def scenario() -> None:
        async with world(**{"max.block.ms": 60_000}) as here:
            engine = here.producer._started()[0]
            lines = SendLines(engine.settings, lambda: None)
            lines.engine = engine
            now_ms = engine.clock.monotonic_ms()
            assert not lines.would_be_overtaken(TOPIC)
            here.topic_codes = [ErrorCode.LEADER_NOT_AVAILABLE] * 3
            late = asyncio.create_task(lines.wait_for_topic(TOPIC, 7, now_ms))
            found: list[tuple[bool, bool, bool]] = []

            async def wait() -> None:
                await lines.wait_for_topic(TOPIC, None, now_ms)
                known = [lines.find_topic(TOPIC, partition, now_ms) is not None for partition in (None, 0)]
                found.append((lines.would_be_overtaken(TOPIC), *known))

            await asyncio.gather(wait(), wait(), wait())
            # In another line there is nobody, and who waits for one partition holds up nobody else.
            assert found == [(True, False, True), (True, False, True), (False, True, True)]
            assert lines.find_topic(TOPIC, 7, now_ms) is None
            late.cancel()
            await asyncio.wait([late])
            assert lines.find_topic(TOPIC, 0, now_ms) is not None

    run_async(scenario())


class Memory:
    """Whoever asks it for room gets as much as there is."""

    def __init__(self) -> None:
        self.free = 0
        self.served: list[str] = []

    def place(self, name: str, size: int = 1) -> Any:
        def append(now_ms: int) -> str | None:
            if self.free < size:
                return None
            self.free -= size
            self.served.append(name)
            return name

        return append


@pytest.mark.parametrize("leaves", ["in time", "by being cancelled", "too late"])
def test_memory_is_given_in_turn_also_when_somebody_leaves(leaves: str) -> None:
    async def scenario() -> None:
        memory = Memory()
        async with world() as here:
            engine = here.producer._started()[0]
            lines = SendLines(engine.settings, lambda: None)
            lines.engine = engine
            wanted = memory.place("large", 5)
            now_ms = engine.clock.monotonic_ms()
            limit_ms = now_ms + (20 if leaves == "too late" else 60_000)
            first = asyncio.create_task(lines.wait_for_memory(wanted, limit_ms))
            others = []
            for name in ("b", "c"):
                await asyncio.sleep(0)
                others.append(asyncio.create_task(lines.wait_for_memory(memory.place(name), now_ms + 60_000)))
            await asyncio.sleep(0)
            assert engine.accumulator.waiting == 3 and lines.would_be_overtaken(TOPIC)
            memory.free = 1
            lines.serve()
            assert memory.served == [], "nobody passes the one who needs more"
            if leaves == "in time":
                memory.free = 6
                lines.serve()
                assert await first == "large"
            elif leaves == "by being cancelled":
                first.cancel()
                await asyncio.wait([first])
            else:
                with pytest.raises(BufferExhaustedError, match="stayed full"):
                    await first
            assert await others[0] == "b" and not others[1].done()
            assert engine.accumulator.waiting == 1
            memory.free = 1
            lines.serve()
            assert await others[1] == "c"
            assert engine.accumulator.waiting == 0 and not lines.would_be_overtaken(TOPIC)

    run_async(scenario())


@pytest.mark.parametrize(
    ("error", "raised"), [(ClientClosedError("closed"), ClientClosedError), (StopIteration(), RuntimeError)]
)
def test_who_cannot_be_served_is_told_why(error: BaseException, raised: type[BaseException]) -> None:
    def refuse() -> None:
        raise error

    async def scenario() -> None:
        async with world() as here:
            engine = here.producer._started()[0]
            lines = SendLines(engine.settings, refuse)
            lines.engine = engine
            waiting = [
                asyncio.create_task(lines.wait_for_memory(Memory().place("a"), engine.clock.monotonic_ms() + 60_000))
                for _ in range(2)
            ]
            await asyncio.sleep(0)
            lines.serve()
            for task in waiting:
                with pytest.raises(raised):
                    await task
            assert engine.accumulator.waiting == 0

    run_async(scenario())
