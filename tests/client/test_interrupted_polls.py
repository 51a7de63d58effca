"""A handler of a signal that raises, as Ctrl-C and most handlers of SIGTERM do, when a poll has just taken records."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

import ottla
from ottla.client.core.consumer.handout import Handout
from tests.broker_process import BrokerProcess
from tests.client.consumer_shells import PATIENCE_S, make_topic, write

VALUES = [b"value-%d" % number for number in range(50)]

Poll = Callable[["ottla.Consumer[bytes | None, bytes | None]"], list[bytes | None]]


class Enough(BaseException):
    pass


@pytest.fixture(autouse=True)
def raising_handler() -> Iterator[None]:
    def raise_it(number: int, frame: FrameType | None) -> None:
        raise Enough

    before = signal.signal(signal.SIGUSR1, raise_it)
    yield
    signal.signal(signal.SIGUSR1, before)


def by_record(consumer: ottla.Consumer[bytes | None, bytes | None]) -> list[bytes | None]:
    return [record.value for record in consumer.poll(1.0, 20)]


def by_column(consumer: ottla.Consumer[bytes | None, bytes | None]) -> list[bytes | None]:
    values: list[bytes | None] = consumer.poll_arrow(1.0, 20)["value"].to_pylist()
    return values


@pytest.mark.parametrize(("poll", "taking"), [(by_record, "take"), (by_record, "take_decoded"), (by_column, "claim")])
def test_what_was_taken_is_read_again(
    broker: BrokerProcess, new_topic: str, monkeypatch: pytest.MonkeyPatch, poll: Poll, taking: str
) -> None:
    write(broker.bootstrap, make_topic(broker.bootstrap, new_topic, 1), VALUES)
    take = getattr(Handout, taking)
    interrupted = 0

    def take_and_interrupt(handout: Handout, *given: Any) -> Any:
        nonlocal interrupted
        taken = take(handout, *given)
        if taken and interrupted < 3:
            interrupted += 1
            os.kill(os.getpid(), signal.SIGUSR1)
        return taken

    monkeypatch.setattr(Handout, taking, take_and_interrupt)
    read: list[bytes | None] = []
    positions: list[int] = []
    with ottla.Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(new_topic, 0)])
        deadline_s = time.monotonic() + PATIENCE_S
        while len(read) < len(VALUES):
            assert time.monotonic() < deadline_s
            try:
                read += poll(consumer)
            except Enough:
                # Nor would it be committed.
                positions.append(consumer.position((new_topic, 0), PATIENCE_S) - len(read))
        assert poll(consumer) == []
    assert read == VALUES
    assert positions and not any(positions)


def test_what_was_returned_before_is_not_read_again(
    broker: BrokerProcess, new_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(broker.bootstrap, make_topic(broker.bootstrap, new_topic, 1), VALUES)

    def interrupt(*given: Any) -> None:
        raise Enough

    with ottla.Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(new_topic, 0)])
        read: list[bytes | None] = []
        deadline_s = time.monotonic() + PATIENCE_S
        while len(read) < 20:
            assert time.monotonic() < deadline_s
            read += by_record(consumer)
        with monkeypatch.context() as patch, pytest.raises(Enough):
            patch.setattr(Handout, "take_decoded", interrupt)
            consumer.poll(1.0)
        while len(read) < len(VALUES):
            assert time.monotonic() < deadline_s
            read += by_record(consumer)
    assert read == VALUES
