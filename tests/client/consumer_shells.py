"""Both consumers behind the same blocking calls, so that one suite describes both."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

import ottla.client.aio as ottla_aio
import ottla.client.sync as ottla_sync

PATIENCE_S = 30.0


class AioDriver:
    """Runs each call of an asyncio consumer to its end, in a loop that all consumers of a test share."""

    def __init__(self, loop: asyncio.AbstractEventLoop, make: Callable[[], Any]) -> None:
        self._loop = loop
        self._inner = make()
        self._run(self._inner.start)

    def _run(self, call: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        async def run() -> Any:
            found = call(*args, **keywords)
            return await found if inspect.isawaitable(found) else found

        return self._loop.run_until_complete(run())

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found
        return lambda *args, **keywords: self._run(found, *args, **keywords)


class Shell:
    """Makes consumers of one kind and closes what a test has left open."""

    def __init__(self, kind: str, bootstrap: str) -> None:
        self.kind = kind
        self.bootstrap = bootstrap
        self._stack = ExitStack()
        self._loop = asyncio.new_event_loop() if kind == "aio" else None

    def __call__(self, **settings: Any) -> Any:
        settings = {"bootstrap_servers": self.bootstrap, "auto_offset_reset": "earliest", **settings}
        if self._loop is not None:
            consumer: Any = AioDriver(self._loop, lambda: ottla_aio.Consumer(**settings))
        else:
            consumer = ottla_sync.Consumer(**settings)
        self._stack.callback(consumer.close)
        return consumer

    def close(self) -> None:
        self._stack.close()
        if self._loop is not None:
            self._loop.close()


@contextmanager
def open_shell(kind: str, bootstrap: str) -> Iterator[Shell]:
    shell = Shell(kind, bootstrap)
    try:
        yield shell
    finally:
        shell.close()


def make_topic(bootstrap: str, topic: str, partitions: int = 1, **configs: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(PATIENCE_S)
    # A broker of Kafka may hear of it a little later than its controller.
    deadline_s = time.monotonic() + PATIENCE_S
    while len(admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions) < partitions:
        assert time.monotonic() < deadline_s, f"the topic {topic} was made, and is not known to its broker"
        time.sleep(0.02)
    return topic


def write(bootstrap: str, topic: str, values: list[bytes], partition: int = 0, **settings: Any) -> None:
    """Through confluent-kafka: what we read was not written by us."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, **given})
    for number, value in enumerate(values):
        producer.produce(topic, value, key=b"key-%d" % number, partition=partition, headers=[("n", b"%d" % number)])
    assert producer.flush(PATIENCE_S) == 0


def read(consumer: Any, count: int, patience_s: float = PATIENCE_S) -> list[Any]:
    """At least `count` records, in the order they came."""
    records: list[Any] = []
    deadline_s = time.monotonic() + patience_s
    while len(records) < count and time.monotonic() < deadline_s:
        records += consumer.poll(0.2)
    assert len(records) >= count, f"only {len(records)} of {count} records came"
    return records


def wait_until(condition: Callable[[], bool], *consumers: Any, patience_s: float = PATIENCE_S) -> list[Any]:
    """Polls the consumers in turn until the condition holds; returns what they gave."""
    records: list[Any] = []
    deadline_s = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        for consumer in consumers:
            records += consumer.poll(0.05)
    return records
