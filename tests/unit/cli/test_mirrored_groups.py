"""`ottla pipeline groups`: which groups are meant, what is only shown, and when it counts as done."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from ottla.base.types import TopicPartition
from ottla.cli.failures import UsageError
from ottla.cli.mirrored_groups import move_groups
from ottla.spark.mirror import group_offsets, group_sync
from ottla.spark.mirror.group_offsets import Translation, Verdict
from tests.unit.cli.test_pipeline import mirrored

SOURCE, TARGET = TopicPartition("t", 0), TopicPartition("west.t", 0)


class Offsets:
    """Of groups on both clusters: `a` moves, `b` is active, all others have committed nothing."""

    def __init__(self) -> None:
        self.chosen: list[str] = []
        self.asked: list[tuple[object, ...]] = []
        self.committed: list[list[str]] = []
        self.closed = 0

    def __call__(self, mirror: Any) -> Offsets:
        return self

    def chosen_groups(self) -> list[str]:
        return self.chosen

    def read(self) -> str:
        return "the map"

    def close(self) -> None:
        self.closed += 1

    def translate(self, offset_map: str, groups: list[str], *, rewind: bool) -> list[Translation]:
        self.asked.append((offset_map, groups, rewind))
        if "broken" in groups:
            raise RuntimeError
        verdicts = {"a": Verdict.MOVES, "b": Verdict.IS_ACTIVE}
        return [
            Translation(group, SOURCE, 5, TARGET, 7, None, verdicts[group]) for group in groups if group in verdicts
        ]

    def commit(self, translations: list[Translation]) -> list[Translation]:
        self.committed.append([one.group_id for one in translations])
        return [one for one in translations if one.verdict is Verdict.MOVES]


@pytest.fixture
def offsets(monkeypatch: pytest.MonkeyPatch) -> Offsets:
    made = Offsets()
    monkeypatch.setattr(group_offsets, "GroupOffsets", made)
    monkeypatch.setattr(group_sync, "open_map", made)
    return made


def move(*groups: str, execute: bool = False, rewind: bool = False) -> bool:
    return move_groups(mirrored("m"), list(groups) or None, None, execute=execute, rewind=rewind)


@pytest.mark.parametrize(
    ("groups", "is_done", "told"),
    [
        (["a"], True, []),
        (["a", "b"], False, []),
        (
            ["d", "a", "c"],
            False,
            [f"group {name} has committed nothing in the topics that are mirrored" for name in "cd"],
        ),
    ],
)
def test_it_is_done_when_every_group_can_go_on(
    offsets: Offsets, groups: list[str], is_done: bool, told: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert move(*groups) is is_done
    assert offsets.committed == []
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("group ")] == told


def test_offsets_are_committed_if_that_is_asked_for(offsets: Offsets, capsys: pytest.CaptureFixture[str]) -> None:
    assert move("a", "b", execute=True, rewind=True) is False
    assert offsets.asked == [("the map", ["a", "b"], True)]
    assert offsets.committed == [["a", "b"]]
    assert capsys.readouterr().out.splitlines()[-1] == "moved: 1 of 2 partitions"


def test_without_a_name_the_groups_of_the_mirror_are_meant(offsets: Offsets) -> None:
    with pytest.raises(UsageError, match="mirror m has no groups to translate: name one with --group"):
        move()
    offsets.chosen = ["a"]
    assert move() is True
    assert offsets.asked == [("the map", ["a"], False)]


@pytest.mark.parametrize("group", ["a", "broken"])
def test_the_map_is_closed_whatever_happens(offsets: Offsets, group: str) -> None:
    if group == "broken":
        with pytest.raises(RuntimeError):
            move(group)
    else:
        move(group)
    assert offsets.closed == 1
