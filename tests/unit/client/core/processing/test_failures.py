"""How records that failed are told of: one line each, and a traceback of the handler once for each kind."""

from __future__ import annotations

import traceback

import pytest

from ottla.base.types import TopicPartition
from ottla.client.core.consumer.record import make_record_class
from ottla.client.core.processing.failures import KINDS_MAX, FailureKinds, put_aside_line, reason_of
from ottla.client.core.processing.parallel import RawRecord
from ottla.client.errors import DeserializationError
from ottla.records.batch import TimestampType


def record() -> RawRecord:
    return make_record_class("orders", 2, TimestampType.CREATE_TIME, None)(17, 1000, b"k", b"v", [])


def raised_by(source: str, name: str = "shop.orders") -> BaseException:
    """The error of a piece of code in a module of that name, called by one of ours."""
    ours = compile("def call(handler):\n    handler()\n", "parallel.py", "exec")
    scope: dict[str, object] = {"__name__": "ottla.client.aio.processing.parallel"}
    exec(ours, scope)
    theirs: dict[str, object] = {"__name__": name}
    exec(compile(source, "orders.py", "exec"), theirs)
    try:
        scope["call"](theirs["handle"])  # type: ignore[operator]
    except Exception as e:
        return e.with_traceback(e.__traceback__ and e.__traceback__.tb_next)
    raise AssertionError


FAILS = "def handle():\n    raise ValueError('no such article')\n"
FAILS_ELSEWHERE = "def handle():\n\n    raise ValueError('no such article')\n"
FAILS_OTHERWISE = "def handle():\n    raise KeyError('article')\n"


def test_a_traceback_is_for_the_first_failure_of_its_kind() -> None:
    kinds = FailureKinds()
    assert kinds.traceback_if_new(raised_by(FAILS)) is not None
    assert kinds.traceback_if_new(raised_by(FAILS)) is None
    assert kinds.traceback_if_new(raised_by(FAILS_ELSEWHERE)) is not None
    assert kinds.traceback_if_new(raised_by(FAILS_OTHERWISE)) is not None
    assert kinds.traceback_if_new(raised_by(FAILS_OTHERWISE)) is None


def test_a_traceback_begins_with_the_handler() -> None:
    shown = FailureKinds().traceback_if_new(raised_by(FAILS))
    assert shown is not None
    assert [frame.filename for frame in traceback.extract_tb(shown[2])] == ["orders.py"]
    # Only our own package is left out, not whatever begins like it.
    shown = FailureKinds().traceback_if_new(raised_by(FAILS, "ottlas.orders"))
    assert shown is not None and traceback.extract_tb(shown[2])[0].filename == "orders.py"


def test_a_failure_of_our_own_is_shown_in_full() -> None:
    shown = FailureKinds().traceback_if_new(raised_by(FAILS, "ottla.client.app.calls"))
    assert shown is not None
    assert [frame.filename for frame in traceback.extract_tb(shown[2])] == ["parallel.py", "orders.py"]


def test_kinds_are_not_gathered_for_ever() -> None:
    kinds = FailureKinds()
    for number in range(KINDS_MAX):
        assert kinds.traceback_if_new(raised_by("\n" * number + FAILS)) is not None
    assert kinds.traceback_if_new(raised_by("\n" * KINDS_MAX + FAILS)) is None


def test_a_payload_has_no_traceback() -> None:
    error = DeserializationError("number: not JSON", topic_partition=TopicPartition("orders", 2), offset=17)
    try:
        raise error
    except DeserializationError:
        assert FailureKinds().traceback_if_new(error) is None
    assert put_aside_line(record(), error, attempts=1, topic="orders.dlt") == (
        "orders-2@17 cannot be read, and went to the dead-letter topic orders.dlt: number: not JSON"
    )


@pytest.mark.parametrize(("attempts", "told"), [(1, "1 attempt"), (4, "4 attempts")])
def test_a_line_names_the_place_the_topic_and_the_reason(attempts: int, told: str) -> None:
    line = put_aside_line(record(), ValueError("no such article"), attempts=attempts, topic="orders.dlt")
    assert line == (
        f"orders-2@17 failed, and went to the dead-letter topic orders.dlt after {told}: ValueError: no such article"
    )


def test_an_error_without_a_text_of_its_own() -> None:
    class BrokenError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert reason_of(BrokenError()) == "BrokenError: (no text, for that raises RuntimeError)"
