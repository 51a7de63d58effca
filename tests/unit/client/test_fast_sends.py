"""Which sends take the short way into a batch that is open, in both producers, and which may not."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

import ottla
from ottla import aio
from ottla.client.aio.producer import producer as aio_module
from ottla.client.errors import ClientClosedError
from ottla.client.sync.producer import sending
from tests.waiting import run_async

NOW_S = 1000.0


class Text(bytes): ...


def lane(places: int = 3, *, until_s: float = NOW_S + 1) -> Any:
    """Up to 5 bytes always, and up to 9 until the time is over for which its records have the right one."""
    return SimpleNamespace(
        length=5, timed_length=9, stamped_until_s=until_s, places=[None] * places, numbers=itertools.count()
    )


def sent_by_a_task(monkeypatch: pytest.MonkeyPatch, lanes: dict[str, Any], *given: Any, **more: Any) -> Any:
    """The future; None if it went the long way, which this producer refuses, for it was never started."""
    monkeypatch.setattr(aio_module, "time", SimpleNamespace(time=lambda: NOW_S))
    producer: Any = aio.Producer.__new__(aio.Producer)
    producer._engine = producer._intake = None
    producer._closed = False
    producer._lanes = lanes
    try:
        return run_async(producer.send(*given, **more))
    except ClientClosedError:
        return None


def sent_by_a_thread(monkeypatch: pytest.MonkeyPatch, lanes: dict[str, Any], *given: Any, **more: Any) -> Any:
    monkeypatch.setattr(sending, "_time_s", lambda: NOW_S)
    producer: Any = ottla.Producer.__new__(ottla.Producer)
    producer._lanes = lanes
    producer._send_slowly = lambda record, on_delivery: None
    return producer.send(*given, **more)


SENDERS = [sent_by_a_task, sent_by_a_thread]


@pytest.mark.parametrize("send", SENDERS)
@pytest.mark.parametrize(
    ("value", "until_s", "is_short"),
    [
        (b"", NOW_S - 1, True),
        (b"12345", NOW_S - 1, True),
        (b"123456", NOW_S - 1, False),
        (b"123456", NOW_S, False),
        (b"123456", NOW_S + 0.001, True),
        (b"123456789", NOW_S + 1, True),
        (b"1234567890", NOW_S + 1, False),
        (bytearray(b"1"), NOW_S + 1, False),
        (Text(b"1"), NOW_S + 1, False),
        (None, NOW_S + 1, False),
        ("1", NOW_S + 1, False),
    ],
)
def test_bytes_that_have_room_go_the_short_way(
    monkeypatch: pytest.MonkeyPatch, send: Any, value: Any, until_s: float, is_short: bool
) -> None:
    open_lane = lane(until_s=until_s)
    future = send(monkeypatch, {"t": open_lane}, "t", value)
    assert (future is not None) is is_short
    assert open_lane.places == [value if is_short else None, None, None]


@pytest.mark.parametrize("send", SENDERS)
@pytest.mark.parametrize(
    "more",
    [
        {"key": b""},
        {"key": b"k"},
        {"partition": 0},
        {"timestamp_ms": 0},
        {"headers": [("h", b"1")]},
        {"on_delivery": print},
    ],
    ids=str,
)
def test_whatever_else_a_record_has_goes_the_long_way(
    monkeypatch: pytest.MonkeyPatch, send: Any, more: dict[str, Any]
) -> None:
    open_lane = lane()
    assert send(monkeypatch, {"t": open_lane}, "t", b"1", **more) is None
    assert open_lane.places == [None] * 3
    plain = {"key": None, "partition": None, "timestamp_ms": None, "headers": (), "on_delivery": None}
    assert send(monkeypatch, {"t": open_lane}, "t", b"1", **plain) is not None


@pytest.mark.parametrize("send", SENDERS)
def test_places_are_taken_one_after_the_other_until_there_are_none(monkeypatch: pytest.MonkeyPatch, send: Any) -> None:
    open_lane = lane(places=2)
    futures = [send(monkeypatch, {"t": open_lane}, "t", value) for value in (b"1", b"2", b"3")]
    assert open_lane.places == [b"1", b"2"] and futures[2] is None
    assert [(future._source, future._number) for future in futures[:2]] == [(open_lane, 0), (open_lane, 1)]


@pytest.mark.parametrize("send", SENDERS)
@pytest.mark.parametrize("topic", ["u", ["t"], None])
def test_what_has_no_open_batch_goes_the_long_way(monkeypatch: pytest.MonkeyPatch, send: Any, topic: Any) -> None:
    assert send(monkeypatch, {"t": lane()}, topic, b"1") is None


@pytest.mark.parametrize("was_in_time", [True, False])
def test_a_thread_that_came_while_the_batch_was_closed_asks_whether_it_was_in_time(
    monkeypatch: pytest.MonkeyPatch, was_in_time: bool
) -> None:
    asked: list[tuple[object, int]] = []
    open_lane = lane()
    places = open_lane.places

    def close() -> int:
        open_lane.places = []
        return 1

    open_lane.numbers = iter(close, None)

    def answer(self: object, asked_lane: object, number: int) -> bool:
        asked.append((asked_lane, number))
        return was_in_time

    monkeypatch.setattr(sending.BaseProducer, "_was_in_time", answer)
    future = sent_by_a_thread(monkeypatch, {"t": open_lane}, "t", b"1")
    assert (future is not None) is was_in_time and asked == [(open_lane, 1)] and places[1] == b"1"
