"""Parallel consumers of both kinds behind the same blocking calls, each running in a thread of the test."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import ottla
from ottla import ConsumerRecord, TopicPartition

PATIENCE_S = 30.0
QUICK = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 100, "auto_commit_interval_ms": 100}


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"it did not happen in time: {what}"
        time.sleep(0.01)


class Member:
    """A member at work. The handler is a plain function; for "aio" it is called from a coroutine in a thread, and
    "aio-threads" leaves the threads to the consumer."""

    def __init__(self, kind: str, handler: Callable[[ConsumerRecord[Any, Any]], Any], options: dict[str, Any]) -> None:
        self.kind = kind
        self.failure: BaseException | None = None
        self.consumer: Any = None
        self._handler = handler
        self._options = options
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Member:
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)
        if self.consumer is None and self.failure is not None:
            raise self.failure
        return self

    def _run(self) -> None:
        try:
            if self.kind == "aio":
                asyncio.run(self._run_aio(self._handle))
            elif self.kind == "aio-threads":
                asyncio.run(self._run_aio(self._handler))
            else:
                with ottla.ParallelConsumer(handler=self._handler, **self._options) as consumer:
                    self._began(consumer)
                    consumer.run()
        except BaseException as e:
            self.failure = e
        finally:
            self._ready.set()

    async def _handle(self, record: ConsumerRecord[Any, Any]) -> None:
        if inspect.iscoroutinefunction(self._handler):
            await self._handler(record)
        else:
            await asyncio.to_thread(self._handler, record)

    async def _run_aio(self, handler: Callable[[ConsumerRecord[Any, Any]], Any]) -> None:
        async with ottla.aio.ParallelConsumer(handler=handler, **self._options) as consumer:
            self._began(consumer)
            await consumer.run()

    def _began(self, consumer: Any) -> None:
        self.consumer = consumer
        self._ready.set()

    def wait_for_failure(self) -> BaseException:
        self._thread.join(PATIENCE_S)
        assert self.failure is not None
        return self.failure

    def stop(self) -> None:
        if self.consumer is not None:
            self.consumer.stop()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the member does not end"


class Members:
    """Makes members of one kind for one topic and group, and stops what a test has left running."""

    def __init__(self, kind: str, bootstrap: str, topic: str) -> None:
        self.kind = kind
        self.bootstrap = bootstrap
        self.topic = topic
        self.group_id = f"group-of-{topic}"
        self._stack = ExitStack()

    def __call__(self, handler: Callable[[ConsumerRecord[Any, Any]], Any], **options: Any) -> Member:
        given = {
            "topics": [self.topic],
            "bootstrap_servers": self.bootstrap,
            "group_id": self.group_id,
            "auto_offset_reset": "earliest",
            **QUICK,
            **options,
        }
        given = {name: value for name, value in given.items() if value is not None or name == "dead_letter"}
        member = Member(self.kind, handler, given)
        self._stack.callback(member.stop)
        return member.start()

    def committed(self, partition: int = 0) -> int:
        """-1 if nothing is."""
        with ottla.Admin(bootstrap_servers=self.bootstrap) as admin:
            found = admin.list_group_offsets([self.group_id])[self.group_id]
        offset = found.get(TopicPartition(self.topic, partition))
        return -1 if offset is None else offset.offset

    def close(self) -> None:
        self._stack.close()
