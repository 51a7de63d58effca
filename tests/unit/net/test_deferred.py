"""Replies that come later, and those that are handed on to another one."""

from __future__ import annotations

import pytest

from ottla.net.connection_context import ServerStats
from ottla.net.service import Deferred


class Owner:
    """A connection, as far as a reply knows it."""

    def __init__(self) -> None:
        self.events: list[object] = []

    def deferred_completed(self, deferred: Deferred) -> None:
        self.events.append(deferred.pieces)

    def deferred_failed(self) -> None:
        self.events.append("closed")


@pytest.fixture
def owner() -> Owner:
    return Owner()


@pytest.fixture
def outer(owner: Owner) -> Deferred:
    outer = Deferred()
    outer.attach(owner)
    return outer


@pytest.mark.parametrize("is_early", [True, False])
def test_a_reply_is_handed_on_whenever_it_comes(owner: Owner, outer: Deferred, is_early: bool) -> None:
    inner = Deferred()
    if is_early:
        inner.complete([b"reply"])
    inner.forward_to(outer)
    assert owner.events == ([[b"reply"]] if is_early else [])
    if not is_early:
        inner.complete([b"reply"])
    assert owner.events == [[b"reply"]]
    with pytest.raises(RuntimeError, match="twice"):
        outer.complete([])


def test_to_close_is_handed_on(owner: Owner, outer: Deferred) -> None:
    inner = Deferred()
    inner.forward_to(outer)
    inner.close_connection()
    assert owner.events == ["closed"]


def test_that_the_peer_has_gone_is_handed_back(owner: Owner, outer: Deferred) -> None:
    inner, gone = Deferred(), []
    inner.on_abandoned = lambda: gone.append(True)
    inner.forward_to(outer)
    outer.abandon()
    outer.abandon()
    assert gone == [True]
    inner.complete([b"too late"])
    assert owner.events == []


def test_to_close_before_there_is_a_connection_closes_it_at_once(owner: Owner) -> None:
    deferred = Deferred()
    deferred.close_connection()
    deferred.attach(owner)
    assert owner.events == ["closed"]


def test_counts_begin_with_nothing() -> None:
    stats = ServerStats()
    assert {getattr(stats, name) for name in ServerStats.__slots__} == {0}
