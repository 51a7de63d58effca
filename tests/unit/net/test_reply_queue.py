"""The replies of a connection in their order, and how many bytes of them are in memory."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.base.types import FileSlice
from ottla.net.outgoing import Outgoing
from ottla.net.reply_queue import ReplyQueue, joined
from ottla.net.service import Deferred, LateReply


class Channel:
    """A socket that takes everything."""

    def __init__(self) -> None:
        self.sent = b""

    def send(self, data: Any, flags: int) -> int:
        self.sent += bytes(data)
        return len(data)


class Queue(ReplyQueue):
    def __init__(self, waiting_max: int = 10) -> None:
        self.channel = Channel()
        self.outgoing = Outgoing(self.channel)  # type: ignore[arg-type]
        super().__init__(self.outgoing, waiting_max)

    def sent(self) -> bytes:
        """What leaves now."""
        self.outgoing.flush()
        sent, self.channel.sent = self.channel.sent, b""
        return sent


def deferred(*pieces: bytes) -> Deferred:
    late = Deferred()
    if pieces:
        late.pieces = list(pieces)
    return late


def test_replies_leave_in_their_order_and_wait_for_the_late_ones() -> None:
    queue = Queue()
    first, late = deferred(), LateReply()
    assert not queue.is_waiting
    queue.add([b"at once"])
    assert not queue.is_waiting and queue.sent() == b"at once"
    queue.wait_for(first)
    queue.add([b"b", b"c"])
    queue.wait_for(late)
    queue.add([b"e"])
    assert queue.is_waiting and not queue.release() and queue.sent() == b""
    late.append(b"d")
    assert not queue.release() and queue.sent() == b""
    first.pieces = [b"a"]
    assert not queue.release() and queue.sent() == b"abcde" and not queue.is_waiting


@pytest.mark.parametrize("waiting_max", [1, 2, 3])
def test_a_queue_is_full_once_and_says_so_when_it_is_not_any_more(waiting_max: int) -> None:
    queue = Queue(waiting_max)
    first = deferred()
    assert queue.wait_for(first) == (waiting_max == 1)
    assert [queue.add([b"x"]) for _ in range(3)] == [waiting_max == 2, waiting_max == 3, False]
    assert not queue.release()
    first.pieces = [b"a"]
    assert queue.release() and queue.sent() == b"axxx"
    assert not queue.release()


def test_only_what_is_in_memory_is_counted() -> None:
    queue = Queue()
    queue.add([b"12345", FileSlice(3, 0, 1000), b"67"])
    assert queue.unsent_bytes == 7


def test_late_replies_are_counted_when_they_leave() -> None:
    queue = Queue()
    late = [LateReply(), LateReply()]
    for each in late:
        queue.wait_for(each)
        each.append(b"abc")
    assert queue.unsent_bytes == 0
    queue.release()
    assert queue.unsent_bytes == 6 and queue.sent() == b"abcabc"


def test_when_all_was_sent_what_waits_still_counts() -> None:
    queue = Queue()
    queue.add([b"sent"])
    queue.wait_for(deferred())
    queue.wait_for(deferred(b"there", b"already"))
    queue.wait_for(deferred())
    late = LateReply()
    late.append(b"counted when it leaves")
    queue.wait_for(late)
    queue.add([b"behind"])
    queue.all_sent()
    assert queue.unsent_bytes == len(b"therealreadybehind")


def test_who_waits_for_a_reply_that_nobody_wants_is_told_of() -> None:
    queue = Queue()
    both = [deferred(), deferred(b"done")]
    queue.wait_for(both[0])
    queue.add([b"x"])
    queue.wait_for(LateReply())
    queue.wait_for(both[1])
    assert queue.clear() == both
    assert not queue.is_waiting and queue.clear() == []


@pytest.mark.parametrize("replies", [[b"a"], [b"a", b"bc"], [b"a", b"", b"c"]])
def test_replies_are_joined(replies: list[bytes]) -> None:
    assert joined([[reply] for reply in replies]) == b"".join(replies)
