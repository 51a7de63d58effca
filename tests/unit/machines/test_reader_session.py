"""The reader's end of a fetch session (KIP-227): against a broker's end that remembers what it was told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition, Uuid
from ottla.machines.reader_session import FetchSession, SessionRequest, Wanted
from ottla.wire.apis.fetch import FetchPartition, FetchTopic, ForgottenTopic

IDS = [Uuid(bytes(15) + bytes([number])) for number in (1, 2)]
A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def wanted(offset: int = 0, topic_id: Uuid = IDS[0]) -> Wanted:
    return Wanted(topic_id, offset, 3, 1000, 2, 1)


class Broker:
    """Applies requests as a broker does: epoch 0 begins anew, others change what it remembers."""

    def __init__(self) -> None:
        self.fetched: dict[tuple[str, Uuid, int], int] = {}

    def apply(self, request: SessionRequest) -> None:
        if request.session_epoch == 0:
            self.fetched.clear()
        for gone in request.forgotten:
            for index in gone.partitions:
                self.fetched.pop((gone.topic, gone.topic_id, index))
        for topic in request.topics:
            for part in topic.partitions:
                self.fetched[topic.topic, topic.topic_id, part.partition] = part.fetch_offset


steps = st.tuples(st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 2)), st.sampled_from(IDS), st.booleans())
"""Offsets that are wanted, the id their topics have, and whether the connection is lost then."""


@given(st.lists(steps, max_size=8))
def test_the_broker_always_knows_what_is_wanted(script: list[tuple[dict[TopicPartition, int], Uuid, bool]]) -> None:
    session, broker = FetchSession(), Broker()
    for offsets, topic_id, is_lost in script:
        broker.apply(session.request({partition: wanted(offset, topic_id) for partition, offset in offsets.items()}))
        assert broker.fetched == {(topic, topic_id, index): offset for (topic, index), offset in offsets.items()}
        assert session.partitions == frozenset(offsets)
        if is_lost:
            session.dropped()
        else:
            session.answered(0, 77)


def test_only_changes_are_named() -> None:
    session = FetchSession()
    first = session.request({A: wanted(), C: wanted()})
    assert (first.session_id, first.session_epoch, session.is_full) == (0, 0, True)
    (part,) = first.topics[0].partitions
    assert (part.partition, part.fetch_offset, part.current_leader_epoch) == (0, 0, 3)
    assert (part.partition_max_bytes, part.last_fetched_epoch, part.log_start_offset) == (1000, 2, 1)
    session.answered(0, 77)
    assert session.request({A: wanted(), C: wanted()}) == SessionRequest(77, 1, [], [])
    session.answered(0, 77)
    changed = session.request({A: wanted(5), B: wanted()})
    assert (changed.session_epoch, len(changed.topics), len(changed.forgotten)) == (2, 1, 1)
    assert [part.partition for part in changed.topics[0].partitions] == [0, 1]
    assert (changed.forgotten[0].topic, changed.forgotten[0].partitions) == ("u", [0])


def test_a_topic_made_anew_is_forgotten_and_named_again() -> None:
    session = FetchSession()
    session.request({A: wanted(topic_id=IDS[0])})
    session.answered(0, 77)
    request = session.request({A: wanted(topic_id=IDS[1])})
    assert [gone.topic_id for gone in request.forgotten] == [IDS[0]]
    assert [topic.topic_id for topic in request.topics] == [IDS[1]]


@pytest.mark.parametrize(
    ("error_code", "session_id", "next_id", "next_epoch"),
    [
        (0, 77, 77, 1),
        (0, 0, 0, 0),
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, 0, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0, 55, 0),
    ],
)
def test_what_the_next_request_is_after_an_answer(
    error_code: int, session_id: int, next_id: int, next_epoch: int
) -> None:
    session = FetchSession()
    session.session_id = 55
    session.request({A: wanted()})
    session.answered(error_code, session_id)
    request = session.request({A: wanted()})
    assert (request.session_id, request.session_epoch) == (next_id, next_epoch)
    assert bool(request.topics) is (next_epoch == 0)


def test_epochs_begin_again_with_one() -> None:
    session = FetchSession()
    session.answered(0, 77)
    session._epoch = 2**31 - 2
    session.answered(0, 77)
    assert session.request({}).session_epoch == 2**31 - 1
    session.answered(0, 77)
    assert session.request({}).session_epoch == 1


@pytest.mark.parametrize("ends", ["answer without a session", "lost connection", "error"])
def test_a_session_that_has_ended_begins_anew_with_everything(ends: str) -> None:
    session = FetchSession()
    session.request({A: wanted()})
    session.answered(0, 77)
    assert session.request({A: wanted()}).session_epoch == 1
    if ends == "answer without a session":
        session.answered(0, 0)
    elif ends == "lost connection":
        session.dropped()
    else:
        session.answered(ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
    assert session.is_full
    assert session.partitions == frozenset()
    again = session.request({A: wanted()})
    assert (again.session_epoch, len(again.topics), again.forgotten) == (0, 1, [])
    assert again.session_id == (0 if ends == "answer without a session" else 77), "the broker may drop the old one"


def test_all_that_is_wanted_of_a_partition_is_asked_for() -> None:
    """What only followers say is left out by others, as -1."""
    session = FetchSession()
    assert (session.session_id, session.is_full, session.end_offsets, session.partitions) == (0, True, {}, frozenset())
    asked = session.request({A: wanted(5), C: Wanted(IDS[1], 9, 4, 500)})

    def topic(name: str, topic_id: Uuid, offset: int, epoch: int, last: int, start: int, most: int) -> FetchTopic:
        partition = FetchPartition(
            partition=0,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            last_fetched_epoch=last,
            log_start_offset=start,
            partition_max_bytes=most,
        )
        return FetchTopic(topic=name, topic_id=topic_id, partitions=[partition])

    topics = [topic("t", IDS[0], 5, 3, 2, 1, 1000), topic("u", IDS[1], 9, 4, -1, -1, 500)]
    assert asked == SessionRequest(0, 0, topics, [])
    assert session.partitions == {A, C}
    session.answered(0, 7)
    assert session.request({C: Wanted(IDS[1], 9, 4, 500)}) == SessionRequest(
        7, 1, [], [ForgottenTopic(topic="t", topic_id=IDS[0], partitions=[0])]
    )
