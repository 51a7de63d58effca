"""What `ottla pipeline reset` and `redrive` understand, and how they show what was done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.cli import flow_positions
from ottla.cli import redrive as redriving
from ottla.cli.failures import UsageError
from ottla.spark.offset_places import EARLIEST, LATEST, AtEdge, AtGroup, AtOffsets, AtTime
from ottla.spark.pipeline.moves.reset import Move
from ottla.spark.pipeline.redrive.letters import Letter
from ottla.spark.pipeline.redrive.redrive import LetterBox, Outcome

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
MOVE = Move("f", {T0: 10, T1: 5}, {T0: 4, T1: 5, T2: 8}, {T0: 20, T1: 6, T2: 9}, ("a note",), Path("/old"))

# Where a flow shall go on


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"to_earliest": True}, AtEdge(EARLIEST)),
        ({"to_latest": True}, AtEdge(LATEST)),
        ({"to_time": "2024-01-01T00:00:00Z"}, AtTime(1_704_067_200_000)),
        ({"to_group": "g"}, AtGroup("g")),
        ({"to_offsets": '{"t": {"0": 23}}'}, AtOffsets({T0: 23})),
        ({}, None),
        ({"to_earliest": True, "to_latest": True}, None),
        ({"to_earliest": True, "to_group": "g"}, None),
        ({"to_time": "2024-01-01", "to_offsets": "{}"}, None),
    ],
)
def test_one_place_is_said(given: dict[str, Any], place: object) -> None:
    nowhere: dict[str, Any] = {"to_earliest": False, "to_latest": False}
    options = {**nowhere, **dict.fromkeys(("to_time", "to_group", "to_offsets")), **given}
    if place is None:
        with pytest.raises(UsageError, match="say where to, once"):
            flow_positions._place(**options)
    else:
        assert flow_positions._place(**options) == place


def test_a_move_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    flow_positions._show(MOVE)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[:4]] == [
        ["TOPIC", "PARTITION", "POSITION", "NEW-POSITION", "END", "CHANGE"],
        ["t", "0", "10", "4", "20", "-6"],
        ["t", "1", "5", "5", "6", "0"],
        ["t", "2", "-", "8", "9"],
    ]
    assert lines[4:] == ["a note", "flow f goes on at its new position; its old checkpoint is /old"]
    flow_positions._show(Move("f", {T0: 3}, {T0: 4}, {T0: 20}))
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["t", "0", "3", "4", "20", "+1"]
    assert lines[2:] == ["flow f would go on at its new position; nothing was changed"]


def test_a_move_as_json() -> None:
    assert flow_positions._as_json(MOVE) == {
        "flow": "f",
        "dry_run": False,
        "before": {"t": {"0": 10, "1": 5}},
        "after": {"t": {"0": 4, "1": 5, "2": 8}},
        "ends": {"t": {"0": 20, "1": 6, "2": 9}},
        "read_again": 6,
        "passed_over": 0,
        "notes": ["a note"],
        "old_checkpoint": "/old",
    }
    planned = flow_positions._as_json(Move("f", {T0: 1, T1: 9}, {T0: 4}, {T0: 20}))
    assert (planned["dry_run"], planned["old_checkpoint"]) == (True, None)
    assert (planned["read_again"], planned["passed_over"]) == (0, 3)


# Letters that are sent back

BOX = LetterBox("dead", "orders", {})


def outcome(*letters: tuple[TopicPartition, int, str], **fields: Any) -> Outcome:
    made = Outcome(targets=["t"], **fields)
    for origin, offset, error in letters:
        made.summary.add(Letter(None, None, (), (), origin, offset, 0, "orders", error))
    return made


def shown(capsys: pytest.CaptureFixture[str], *arguments: Any, **options: Any) -> list[str]:
    redriving._show(BOX, *arguments, **options)
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("text", "expected"),
    [(None, (None, None)), ("7", (7, 7)), ("7-", (7, None)), ("7-12", (7, 12)), ("0-0", (0, 0))],
)
def test_offsets(text: str | None, expected: tuple[int | None, int | None]) -> None:
    assert redriving._parse_offsets(text) == expected


@pytest.mark.parametrize("text", ["", "-7", "x", "1-2-3", "1,2"])
def test_offsets_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="write 100-200, 100- for all from 100 on, or 100"):
        redriving._parse_offsets(text)


def test_letters_are_shown_by_error(capsys: pytest.CaptureFixture[str]) -> None:
    made = outcome((T0, 9, "bad"), (T0, 4, "bad"), (T1, 1, "worse"), retimed=2, compacted=["t"])
    lines = shown(capsys, made, None, ["g", "h"], dry_run=False)
    assert [line.split() for line in lines[:3]] == [
        ["LETTERS", "TOPIC", "PARTITION", "OFFSETS", "ERROR"],
        ["2", "t", "0", "4-9", "bad"],
        ["1", "t", "1", "1-1", "worse"],
    ]
    assert lines[3:] == [
        "3 letters of dead sent to where they were in t",
        "other readers of t get them once more: g, h",
        "t is compacted: what is sent back is the newest record of its key there",
        "2 of them are sent under the present time: brokers would delete them for their age",
    ]
    assert shown(capsys, made, None, ["g"], dry_run=True)[3:] == [
        "3 letters of dead would be sent to where they were in t",
        "other readers of t would get them once more: g; with a 'redrive_topic' only the source would",
        "t is compacted: what is sent back is the newest record of its key there",
        "2 of them would be sent under the present time: brokers would delete them for their age",
    ]


def test_a_topic_of_its_own_disturbs_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    made = outcome((T0, 9, "bad"), compacted=["t"])
    assert shown(capsys, made, "again", [], dry_run=False)[2:] == ["1 letter of dead sent to again"]


def test_no_letters(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, outcome(), None, [], dry_run=False) == [
        "dead has no letters of orders that are meant and were not sent back before"
    ]


@pytest.mark.parametrize(("errors", "left_out"), [(30, None), (31, 1), (33, 3)])
def test_the_most_frequent_errors_are_shown(
    capsys: pytest.CaptureFixture[str], errors: int, left_out: int | None
) -> None:
    lines = shown(capsys, outcome(*((T0, n, f"e{n}") for n in range(errors))), "again", [], dry_run=False)
    told = [] if left_out is None else [f"… and {left_out} letters with other errors"]
    assert lines[31:] == [*told, f"{errors} letters of dead sent to again"]


def test_letters_as_json() -> None:
    made = outcome((T1, 9, "bad"), (T1, 4, "bad"), retimed=1)
    expected = {
        "dead_letter_topic": "dead",
        "dry_run": True,
        "letters": 2,
        "to": ["t"],
        "to_origin": True,
        "retimed": 1,
        "other_readers": ["g"],
        "groups": [
            {"topic": "t", "partition": 1, "error": "bad", "letters": 2, "first_offset": 4, "last_offset": 9},
        ],
    }
    assert redriving._as_json(BOX, made, None, ["g"], dry_run=True) == expected
    again = redriving._as_json(BOX, made, "again", ["g"], dry_run=False)
    assert again == {**expected, "dry_run": False, "to": ["again"], "to_origin": False}
