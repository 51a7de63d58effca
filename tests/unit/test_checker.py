"""The checker finds what it must find, and nothing in a history that is in order."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.checker import Anomaly, Operation, Outcome, Poll, Send, check, read_history

OK, FAIL, INFO = Outcome.OK, Outcome.FAIL, Outcome.INFO


def wrote(process: str, *sends: Send, outcome: Outcome = OK) -> Operation:
    return Operation(process, outcome, sends)


def read(process: str, *records: tuple[int, str], key: str = "x", **flags: bool) -> Operation:
    return Operation(process, OK, [Poll(key, records)], **flags)


def rules(history: list[Operation]) -> list[str]:
    return [anomaly.rule for anomaly in check(history)]


def test_a_history_in_order_has_no_anomaly() -> None:
    history = [
        wrote("w1", Send("x", "a", 0), Send("y", "b", 0)),
        wrote("w1", Send("x", "c", 3), outcome=FAIL),
        wrote("w2", Send("x", "d", 5), outcome=INFO),
        wrote("w3", Send("x", "e"), outcome=INFO),
        read("r", (0, "a"), (5, "d")),
        read("r", (0, "b"), key="y"),
        Operation("f", OK, [Poll("x", ((0, "a"), (5, "d"))), Poll("y", ((0, "b"),))], True, True),
    ]
    assert check(history) == []


def test_two_values_at_one_offset() -> None:
    history = [wrote("w", Send("x", "a", 0)), wrote("v", Send("x", "b")), read("r", (0, "a")), read("q", (0, "b"))]
    assert rules(history) == ["inconsistent-offsets"]


def test_what_was_acknowledged_for_an_offset_is_read_from_it() -> None:
    history = [wrote("w", Send("x", "a", 0)), wrote("v", Send("x", "b", 0)), read("r", (0, "a"))]
    assert "inconsistent-offsets" in rules(history)


def test_one_value_at_two_offsets() -> None:
    assert rules([wrote("w", Send("x", "a", 0)), read("r", (0, "a"), (1, "a"))]) == ["duplicate"]
    assert rules([wrote("w", Send("x", "a", 0)), read("r", (1, "a"))])[0] == "duplicate"


def test_the_same_value_in_two_partitions_is_no_duplicate() -> None:
    assert (
        check([wrote("w", Send("x", "a", 0), Send("y", "a", 0)), read("r", (0, "a")), read("r", (0, "a"), key="y")])
        == []
    )


def test_an_acknowledged_record_that_readers_pass_by_is_lost() -> None:
    history = [wrote("w", Send("x", "a", 0)), wrote("w", Send("x", "b", 1)), read("r", (1, "b"))]
    assert rules(history) == ["lost-write"]


def test_a_record_above_everything_read_is_not_lost_yet() -> None:
    assert check([wrote("w", Send("x", "a", 0)), wrote("w", Send("x", "b", 1)), read("r", (0, "a"))]) == []


@pytest.mark.parametrize("outcome", [OK, INFO])
def test_a_transaction_is_all_there_or_not_at_all(outcome: Outcome) -> None:
    history = [
        wrote("w", Send("x", "a"), Send("y", "b"), outcome=outcome),
        Operation("f", OK, [Poll("x", ((0, "a"),)), Poll("y", ())], is_final=True),
    ]
    assert rules(history) == ["unseen", "final-missing"]


def test_a_transaction_nobody_knows_about_may_be_missing_whole() -> None:
    history = [wrote("w", Send("x", "a"), Send("y", "b"), outcome=INFO), read("f", is_final=True)]
    assert check(history) == []


def test_what_was_read_once_must_be_there_at_the_end() -> None:
    history = [wrote("w", Send("x", "a", 0)), read("r", (0, "a")), read("f", is_final=True)]
    assert rules(history) == ["final-missing"]


def test_an_aborted_record_is_read() -> None:
    assert rules([wrote("w", Send("x", "a", 0), outcome=FAIL), read("r", (0, "a"))]) == ["G1a"]


def test_a_record_nobody_sent_is_read() -> None:
    assert rules([read("r", (0, "a"))]) == ["phantom"]


def test_a_transaction_reads_its_own_record() -> None:
    assert rules([Operation("w", OK, [Send("x", "a", 0), Poll("x", ((0, "a"),))])]) == ["precommitted-read"]


WRITTEN = wrote("w", Send("x", "a", 0), Send("x", "b", 2), Send("x", "c", 4))


@pytest.mark.parametrize(
    ("polls", "rule"),
    [
        ([[(0, "a"), (4, "c")]], "int-poll-skip"),
        ([[(2, "b"), (0, "a")]], "int-nonmonotonic-poll"),
        ([[(0, "a")], [(4, "c")]], "poll-skip"),
        ([[(0, "a"), (2, "b")], [(2, "b")]], "nonmonotonic-poll"),
    ],
)
def test_a_reader_jumps(polls: list[list[tuple[int, str]]], rule: str) -> None:
    everything = read("other", (0, "a"), (2, "b"), (4, "c"))
    history = [WRITTEN, everything, *(read("r", *records) for records in polls)]
    assert rules(history) == [rule]
    moved = [WRITTEN, everything, *(read("r", *records, new_assignment=True) for records in polls)]
    assert rules(moved) == ([rule] if rule.startswith("int-") else [])


def test_a_reader_begins_where_it_likes_and_gaps_are_legal() -> None:
    assert check([WRITTEN, read("other", (0, "a")), read("r", (2, "b"), (4, "c"))]) == []


def test_a_reader_whose_operation_failed_reads_again() -> None:
    failed = Operation("r", FAIL, [Poll("x", ((0, "a"), (2, "b")))])
    assert (
        check([WRITTEN, read("r", (0, "a")), Operation("r", FAIL, [Poll("x", ((2, "b"),))]), read("r", (2, "b"))]) == []
    )
    assert check([WRITTEN, failed, read("r", (0, "a"))]) == []


def test_sends_go_back() -> None:
    assert rules([wrote("w", Send("x", "a", 1), Send("x", "b", 0))]) == ["int-nonmonotonic-send"]
    assert rules([wrote("w", Send("x", "a", 1)), wrote("w", Send("x", "b", 0))]) == ["nonmonotonic-send"]
    assert check([wrote("w", Send("x", "a", 1)), wrote("v", Send("x", "b", 0))]) == []


def test_transactions_that_read_from_each_other() -> None:
    one = Operation("t1", OK, [Send("x", "a", 0), Poll("y", ((0, "b"),))])
    two = Operation("t2", OK, [Send("y", "b", 0), Poll("x", ((0, "a"),))])
    three = Operation("t3", OK, [Send("z", "c", 0), Poll("x", ((0, "a"),))])
    assert rules([one, two, three]) == ["G1c"]
    assert check([two, three, wrote("t1", Send("x", "a", 0))]) == []


def test_a_value_sent_twice_cannot_be_judged() -> None:
    with pytest.raises(ValueError, match="twice"):
        check([wrote("w", Send("x", "a", 0)), wrote("w", Send("x", "a", 1))])


def test_a_stored_history() -> None:
    lines = [
        {"p": 1, "type": "invoke", "f": "txn", "v": [["send", "x", [None, "a"]]]},
        {"p": 1, "type": "ok", "f": "txn", "v": [["send", "x", [0, "a"]]]},
        {"p": 2, "type": "invoke", "f": "txn", "v": [["send", "x", [None, "b"]]]},
        {"p": 3, "type": "ok", "f": "assign", "v": None},
        {"p": 3, "type": "ok", "f": "poll", "v": [["poll", {"x": [[0, "a"], [1, "b"]]}]], "final": True},
    ]
    history = read_history(map(json.dumps, lines))
    assert [(op.process, op.outcome) for op in history] == [("1", OK), ("3", OK), ("2", INFO)]
    assert history[1].new_assignment and history[1].is_final
    assert check(history) == []


@pytest.mark.parametrize("line", ["", "[]", '{"p": 1}', '{"p": 1, "type": "ok", "f": "txn", "v": [["jump", 1]]}'])
def test_a_line_that_is_no_entry(line: str) -> None:
    with pytest.raises(ValueError, match="line 1"):
        read_history([line])


@st.composite
def sound_histories(draw: st.DrawFn) -> list[Operation]:
    """What a correct broker could have done: transactions to a few keys, some aborted, then read to the end."""
    logs: dict[str, list[tuple[int, str]]] = {"x": [], "y": [], "z": []}
    next_offset = dict.fromkeys(logs, 0)
    history: list[Operation] = []
    for number in range(draw(st.integers(0, 8))):
        outcome = draw(st.sampled_from(Outcome))
        happens = outcome is OK or (outcome is INFO and draw(st.booleans()))
        sends = []
        for place, key in enumerate(draw(st.lists(st.sampled_from(sorted(logs)), min_size=1, max_size=4))):
            value = f"{number}.{place}"
            sends.append(Send(key, value, next_offset[key] if draw(st.booleans()) else None))
            if happens:
                logs[key].append((next_offset[key], value))
            next_offset[key] += draw(st.integers(1, 2))
        history.append(Operation(f"w{number}", outcome, sends))
    final = [Poll(key, tuple(records)) for key, records in logs.items()]
    return [*history, Operation("f", OK, final, is_final=True)]


@given(sound_histories())
def test_sound_histories_are_found_sound(history: list[Operation]) -> None:
    assert check(history) == []


@given(sound_histories(), st.data())
def test_one_record_taken_away_from_a_sound_history_is_missed(history: list[Operation], data: st.DataObject) -> None:
    final = history[-1]
    known = {(s.key, s.value) for op in history for s in op.sends() if op.outcome is OK}
    records = [
        (poll.key, record) for poll in final.polls() for record in poll.records if (poll.key, record[1]) in known
    ]
    if not records:
        return
    key, taken = data.draw(st.sampled_from(records))
    left = [Poll(p.key, tuple(r for r in p.records if p.key != key or r != taken)) for p in final.polls()]
    found = check([*history[:-1], Operation("f", OK, left, is_final=True)])
    assert Anomaly("final-missing", f"{taken[1]!r} is not in {key} when it is read from the beginning") in found
