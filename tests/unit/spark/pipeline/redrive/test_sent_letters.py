from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.types import Uuid
from ottla.spark.pipeline.redrive.sent_letters import BLOCK, SentLetters

TOPIC_ID, OTHER_ID = Uuid(bytes(15) + b"\1"), Uuid(bytes(15) + b"\2")
OFFSETS = st.one_of(st.integers(0, 40), st.integers(BLOCK - 20, BLOCK + 20), st.integers(3 * BLOCK - 5, 3 * BLOCK))
LENGTHS = st.one_of(st.integers(0, 40), st.integers(BLOCK - 5, BLOCK + 5))
RUNS = st.lists(st.tuples(st.integers(0, 1), OFFSETS, LENGTHS), max_size=4)


@settings(max_examples=50)
@given(st.lists(RUNS, max_size=3))
def test_what_is_written_down_is_what_was_marked(transactions: list[list[tuple[int, int, int]]]) -> None:
    """After any number of transactions, by one redrive or by one after the other."""
    marked: list[tuple[int, int, int]] = []

    def is_marked(partition: int, offset: int) -> bool:
        return any(one == partition and first <= offset <= first + length for one, first, length in marked)

    topic: dict[bytes, bytes] = {}
    sent = SentLetters(TOPIC_ID)
    for number, runs in enumerate(transactions):
        if number % 2:
            sent = _read(topic)
        for partition, first, length in runs:
            sent.mark(partition, first, first + length)
        marked += runs
        topic |= dict(sent.take_changes())
        assert list(sent.take_changes()) == []
    again = _read(topic)
    ends = {end for _, first, length in marked for end in (first - 1, first, first + length, first + length + 1)}
    for partition in range(2):
        for offset in sorted(end for end in {0, BLOCK - 1, BLOCK, *ends} if end >= 0):
            assert again.was_sent(partition, offset) is is_marked(partition, offset)
            unsent = again.first_unsent(partition, offset)
            assert not is_marked(partition, unsent)
            assert all(is_marked(partition, end) for end in ends if offset <= end < unsent)


def _read(topic: dict[bytes, bytes], topic_id: Uuid = TOPIC_ID) -> SentLetters:
    sent = SentLetters(topic_id)
    for key, value in topic.items():
        sent.read(key, value)
    return sent


def test_a_topic_that_was_made_anew_has_letters_of_its_own() -> None:
    sent = SentLetters(TOPIC_ID)
    sent.mark(0, 0, 99)
    topic = dict(sent.take_changes())
    assert _read(topic).first_unsent(0, 0) == 100
    assert _read(topic, OTHER_ID).first_unsent(0, 0) == 0


def test_a_person_can_read_it_and_every_broker_takes_it() -> None:
    sent = SentLetters(TOPIC_ID)
    sent.mark(2, 0, 4)
    sent.mark(2, 9, 9)
    ((key, value),) = sent.take_changes()
    assert json.loads(key) == {"topic_id": "AAAAAAAAAAAAAAAAAAAAAQ", "partition": 2, "block": 0}
    assert json.loads(value) == {"sent": [[0, 4], [9, 9]]}
    for offset in range(10**12, 10**12 + BLOCK, 2):
        sent.mark(0, offset, offset)
    assert max(len(value) for _, value in sent.take_changes()) < 500_000


@pytest.mark.parametrize(("key", "value"), [(b"{}", b"{}"), (b"x", b"{}"), (b"[]", b"[]")])
def test_something_else_in_the_topic_is_an_error(key: bytes, value: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        SentLetters(TOPIC_ID).read(key, value)


@pytest.mark.parametrize(
    ("offset", "block", "last"), [(0, 0, 0), (16_383, 0, 16_383), (16_384, 1, 16_384), (40_000, 2, 40_000)]
)
def test_a_record_is_about_16384_offsets(offset: int, block: int, last: int) -> None:
    """Records that were written before are read by whoever comes later."""
    sent = SentLetters(TOPIC_ID)
    sent.mark(1, offset, last)
    ((key, value),) = sent.take_changes()
    assert json.loads(key) == {"topic_id": "AAAAAAAAAAAAAAAAAAAAAQ", "partition": 1, "block": block}
    assert json.loads(value) == {"sent": [[offset, last]]}
    written = {key: value}
    assert _read(written).was_sent(1, offset) and not _read(written).was_sent(1, offset + 1)
    assert (_read(written).first_unsent(1, offset), _read(written).first_unsent(0, offset)) == (offset + 1, offset)


def test_a_run_over_several_records() -> None:
    sent = SentLetters(TOPIC_ID)
    sent.mark(0, 16_000, 33_000)
    sent.mark(1, 5, 4)
    told = [(json.loads(key)["block"], json.loads(value)["sent"]) for key, value in sent.take_changes()]
    assert told == [(0, [[16_000, 16_383]]), (1, [[16_384, 32_767]]), (2, [[32_768, 33_000]])]
    assert [sent.first_unsent(0, offset) for offset in (15_999, 16_000, 33_000, 33_001)] == [
        15_999,
        33_001,
        33_001,
        33_001,
    ]
    sent.mark(0, 33_001, 33_001)
    ((key, value),) = sent.take_changes()
    assert (json.loads(key)["block"], json.loads(value)["sent"]) == (2, [[32_768, 33_001]])


def test_a_later_record_of_a_block_replaces_the_earlier() -> None:
    sent = SentLetters(TOPIC_ID)
    sent.mark(0, 0, 9)
    ((key, _),) = sent.take_changes()
    again = _read({key: b'{"sent": [[2, 3], [7, 7]]}'})
    assert [offset for offset in range(12) if again.was_sent(0, offset)] == [2, 3, 7]
    again.read(key, b'{"sent": []}')
    assert not any(again.was_sent(0, offset) for offset in range(12))
