"""Pauses of the collector: nested, in several threads, in a child process."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator

import pytest

from ottla.base.collector import COLLECTOR_PAUSE

PATIENCE_S = 30.0


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.enable()
    yield
    gc.enable() if was_enabled else gc.disable()


def test_it_is_on_again_after_the_last_block() -> None:
    with COLLECTOR_PAUSE:
        assert not gc.isenabled()
        with COLLECTOR_PAUSE:
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_stays_off_if_it_was() -> None:
    gc.disable()
    with COLLECTOR_PAUSE, COLLECTOR_PAUSE:
        pass
    assert not gc.isenabled()


def test_an_error_ends_it_too() -> None:
    with pytest.raises(ZeroDivisionError), COLLECTOR_PAUSE:
        raise ZeroDivisionError
    assert gc.isenabled()


def test_blocks_of_threads_overlap() -> None:
    """One thread begins first and ends first: the other still makes its objects in peace."""
    inside, may_go = threading.Event(), threading.Event()
    states: list[bool] = []

    def other() -> None:
        with COLLECTOR_PAUSE:
            inside.set()
            may_go.wait(PATIENCE_S)
            states.append(gc.isenabled())

    thread = threading.Thread(target=other)
    with COLLECTOR_PAUSE:
        thread.start()
        assert inside.wait(PATIENCE_S)
    states.append(gc.isenabled())
    may_go.set()
    thread.join(PATIENCE_S)
    assert states == [False, False]
    assert gc.isenabled()


def test_a_child_process_does_not_wait_for_the_threads_of_its_parent() -> None:
    inside, may_go = threading.Event(), threading.Event()

    def other() -> None:
        with COLLECTOR_PAUSE:
            inside.set()
            may_go.wait(PATIENCE_S)

    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(PATIENCE_S)
    child = os.fork()
    if child == 0:
        try:
            began_enabled = gc.isenabled()
            with COLLECTOR_PAUSE:
                pauses = not gc.isenabled()
            os._exit(0 if began_enabled and pauses and gc.isenabled() else 1)
        finally:
            os._exit(2)
    _, status = os.waitpid(child, 0)
    may_go.set()
    thread.join(PATIENCE_S)
    assert os.waitstatus_to_exitcode(status) == 0
