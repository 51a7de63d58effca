"""Ctrl-C may come between any two steps of `send`: what was promised before and after it is kept."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from ottla.client import sync
from ottla.client.core.producer import accumulator, lane
from ottla.client.core.producer import batch as producer_batch
from ottla.client.sync.producer.send_futures import SendFuture
from ottla.testing import EmbeddedBroker

TORN = {inspect.getsourcefile(module) for module in (accumulator, lane, producer_batch)}
STEPS_MAX = 2000

VALUES = [b"a", b"b", b"longer than the one before", b"c", b"d" * 700, b"e"]


class Interruption:
    """Raises KeyboardInterrupt before the given line, counted in the code that adds records, as a signal's handler."""

    def __init__(self, step: int) -> None:
        self.left = step

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename not in TORN:
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self


@contextmanager
def interrupted_at(step: int) -> Iterator[Interruption]:
    interruption = Interruption(step)
    before = sys.gettrace()
    sys.settrace(interruption)
    try:
        yield interruption
    finally:
        sys.settrace(before)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as started:
        yield started


@pytest.mark.parametrize("kind", ["plain", "keyed", "many"])
def test_what_is_acknowledged_is_stored_wherever_ctrl_c_comes(broker: EmbeddedBroker, kind: str) -> None:
    broker.create_topic(kind)
    promised: dict[int, bytes] = {}
    for step in range(1, STEPS_MAX):
        futures: list[tuple[bytes, SendFuture]] = []
        with sync.Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000, batch_size=1000) as producer:
            producer.partitions_for(kind)
            was_interrupted = False
            with interrupted_at(step) as interruption:
                for value in VALUES:
                    try:
                        if kind == "many":
                            futures += zip((value, value), producer.send_many(kind, [value, value]), strict=True)
                        else:
                            futures.append((value, producer.send(kind, value, b"k" if kind == "keyed" else None)))
                    except KeyboardInterrupt:
                        was_interrupted = True
            producer.flush(10)
            for value, future in futures:
                promised[future.result(0).offset] = value
            assert producer._accumulator.free_bytes == producer._accumulator.buffer_memory
        if not was_interrupted:
            assert interruption.left > 0
            break
    else:
        pytest.fail("there are more steps than that")
    stored = {}
    with sync.Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        table = consumer.to_arrow(kind, columns=["offset", "value"])
        stored = dict(zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True))
    assert {offset: stored.get(offset) for offset in promised} == promised
