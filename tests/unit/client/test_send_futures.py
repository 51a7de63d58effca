"""Waiting for records in threads: in any, and in the one that would have to bring the news."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.client.aio.producer.producer import not_flushed
from ottla.client.core.producer.batch import Batch
from ottla.client.errors import ClientError
from ottla.client.sync.producer.send_futures import SendFuture, SendFutures, TableFuture, sending
from ottla.errors import ConcurrentUseError


def batch(count: int = 2) -> Batch:
    made = Batch("t", 0, (0,), opened_ms=0, deadline_ms=1)
    for number in range(count):
        made.add((None, b"%d" % number, (), 0), 20)
    return made


@pytest.fixture
def in_the_producers_thread() -> Iterator[set[Any]]:
    """With what it has yet to settle."""
    sending.batches = set()
    yield sending.batches
    del sending.batches


def test_a_result_is_there_when_all_callbacks_have_run() -> None:
    made = batch()
    made.fail(ClientError("no"))
    assert made.done and not made.announced
    many = SendFutures()
    many.add(made, 0, 2)
    table = TableFuture()
    table.add(made)
    for wait in (SendFuture.of(made, 0).result, SendFuture.of(made, 1).exception, many.result, table.exception):
        with pytest.raises(TimeoutError, match="was not acknowledged within"):
            wait(0.001)
    made.announce()
    for wait in (SendFuture.of(made, 0).exception, table.exception):
        error = wait(0)
        assert isinstance(error, ClientError) and error.message == "no"


def test_a_callback_may_ask_for_what_is_settled_and_not_wait_for_the_rest(in_the_producers_thread: set[Any]) -> None:
    settled, unsettled, elsewhere = batch(), batch(), batch()
    settled.fail(ClientError("no"))
    in_the_producers_thread.update((settled, unsettled))
    error = SendFuture.of(settled, 0).exception()
    assert error is not None, "its callbacks are just being called"
    with pytest.raises(ConcurrentUseError, match="must not wait for a record that is not stored yet"):
        SendFuture.of(unsettled, 0).result()
    with pytest.raises(TimeoutError):
        SendFuture.of(elsewhere, 0).result(0)


def test_a_wait_for_many_ends_for_all_of_them() -> None:
    made = [batch(1), batch(1)]
    many = SendFutures()
    for each in made:
        many.add(each, 0, 1)
    with pytest.raises(TimeoutError, match=r"within 0\.0 s"):
        many.result(0)
    with pytest.raises(TimeoutError):
        many.result(-1)
    for each in made:
        each.fail(ClientError("no"))
        each.announce()
    with pytest.raises(ClientError, match="no"):
        many.result()


@pytest.mark.parametrize(
    ("cause", "words"),
    [("", "within 2.5 s"), ("cannot reach h:1", "within 2.5 s; last: cannot reach h:1")],
)
def test_why_a_flush_took_too_long(cause: str, words: str) -> None:
    assert str(not_flushed(2.5, cause)) == f"not every record was acknowledged {words}"
