"""A reader that knows what has changed says the same as one that compares everything."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition, Uuid
from ottla.machines.reader_session import FetchSession, SessionRequest, Wanted

IDS = {topic: Uuid(topic.encode() * 16) for topic in "ab"}

_changes = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 2)),
    st.one_of(st.none(), st.integers(0, 3)),
    max_size=4,
)


def said(request: SessionRequest) -> Any:
    asked = {
        (topic.topic, topic.topic_id, partition.partition, partition.fetch_offset)
        for topic in request.topics
        for partition in topic.partitions
    }
    forgotten = {(topic.topic, topic.topic_id, index) for topic in request.forgotten for index in topic.partitions}
    return request.session_id, request.session_epoch, asked, forgotten


@settings(max_examples=50, deadline=None)
@given(rounds=st.lists(st.tuples(_changes, st.sampled_from([0, 0, 0, ErrorCode.FETCH_SESSION_ID_NOT_FOUND]))))
def test_changes_say_what_a_comparison_would(rounds: list[Any]) -> None:
    comparing, knowing = FetchSession(), FetchSession()
    wanted: dict[TopicPartition, Wanted] = {}
    for changes, error in rounds:
        changed = {p: Wanted(IDS[p.topic], offset, 1, 100) for p, offset in changes.items() if offset is not None}
        gone = [partition for partition, offset in changes.items() if offset is None]
        wanted = {p: entry for p, entry in {**wanted, **changed}.items() if p not in gone}
        if knowing.is_full:
            request = knowing.request_changes(dict(wanted), ())
        else:
            request = knowing.request_changes(changed, gone)
        assert said(request) == said(comparing.request(wanted))
        for session in (comparing, knowing):
            session.answered(error, 0 if error else 7)
            assert session.partitions == (frozenset() if error else frozenset(wanted))


def test_a_topic_that_was_made_anew_is_another_one() -> None:
    session, partition = FetchSession(), TopicPartition("a", 0)
    session.request_changes({partition: Wanted(IDS["a"], 5, 1, 100)}, ())
    session.answered(0, 7)
    request = session.request_changes({partition: Wanted(IDS["b"], 0, 1, 100)}, ())
    assert said(request) == (7, 1, {("a", IDS["b"], 0, 0)}, {("a", IDS["a"], 0)})
