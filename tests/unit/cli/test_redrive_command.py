"""`ottla pipeline redrive`: which letters are meant, where they go, and what is only tried."""

from __future__ import annotations

import json
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from ottla.base.types import TopicPartition
from ottla.cli import redrive as command
from ottla.cli.main import main
from ottla.client import sync
from ottla.spark.pipeline.redrive import choice, redrive
from ottla.spark.pipeline.redrive.letters import Letter, LetterFilter
from ottla.spark.pipeline.redrive.redrive import LetterBox, Outcome


class Work:
    """A redrive that notes how it was made, and whether it was to send anything."""

    def __init__(self) -> None:
        self.made: list[tuple[object, ...]] = []
        self.told: list[Any] = []
        self.done: list[str] = []
        self.targets = ["t"]

    def __call__(self, box: object, chosen: object, to: object, limit: object, *, on_progress: Any) -> Work:
        self.made.append((chosen, to, limit))
        self.told.append(on_progress)
        return self

    def survey(self) -> Outcome:
        return self._outcome("survey")

    def send(self) -> Outcome:
        return self._outcome("send")

    def _outcome(self, how: str) -> Outcome:
        self.done.append(how)
        made = Outcome(targets=self.targets)
        made.summary.add(Letter(None, None, (), (), TopicPartition("t", 0), 5, 0, "orders", "bad"))
        return made


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    made = Work()
    monkeypatch.setattr(command, "load_pipeline", lambda *given: SimpleNamespace(model=lambda: "the model"))
    monkeypatch.setattr(choice, "source_of", lambda model, flow: flow)
    monkeypatch.setattr(choice, "letter_box", lambda source: LetterBox("dead", "orders", {}, "again"))
    monkeypatch.setattr(choice, "other_groups", lambda model, source, admin, targets: [f"a reader of {targets[0]}"])
    monkeypatch.setattr(sync, "Admin", nullcontext)
    monkeypatch.setattr(redrive, "Redrive", made)
    return made


def call(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["pipeline", "redrive", "p.yaml", "f", *options]) == 0
    return capsys.readouterr().out


def test_all_letters_go_to_the_topic_of_their_source(work: Work, capsys: pytest.CaptureFixture[str]) -> None:
    said = call(capsys)
    assert work.made == [(LetterFilter(partitions=()), "again", None)]
    assert work.done == ["send"]
    assert said.splitlines()[-1] == "1 letter of dead sent to again", "nobody else reads that"


def test_every_option_is_heeded(work: Work, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["--error", "bad", "--topic", "t", "--partition", "1", "--partition", "2", "--offsets", "5-9"]
    times = ["--since", "2026-03-01T00:00:00Z", "--until", "2026-03-01T00:00:01Z"]
    call(capsys, *chosen, *times, "--limit", "3")
    ((letters, _, limit),) = work.made
    assert isinstance(letters, LetterFilter)
    assert (letters.error, letters.topic, letters.partitions) == ("bad", "t", (1, 2))
    assert (letters.first_offset, letters.last_offset, limit) == (5, 9, 3)
    assert letters.since_ms is not None and letters.until_ms == letters.since_ms + 1000


def test_letters_that_go_back_to_their_topics_are_seen_by_others(
    work: Work, capsys: pytest.CaptureFixture[str]
) -> None:
    said = call(capsys, "--to-origin")
    assert work.made[0][1] is None
    assert "other readers of t get them once more: a reader of t" in said
    work.targets = []
    assert "a reader" not in call(capsys, "--to-origin")


def test_a_dry_run_sends_nothing(work: Work, capsys: pytest.CaptureFixture[str]) -> None:
    assert "1 letter of dead would be sent to again" in call(capsys, "--dry-run")
    assert work.done == ["survey"]


@pytest.mark.parametrize("form", [["--json"], ["--output", "json"]])
def test_programs_get_one_object(work: Work, form: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(call(capsys, "--to-origin", *form))
    assert (told["letters"], told["to_origin"], told["dry_run"]) == (1, True, False)
    assert told["other_readers"] == ["a reader of t"]
    assert json.loads(call(capsys, *form))["to"] == ["again"]
    assert work.told == [command._ignore] * 2


@pytest.mark.parametrize("in_terminal", [False, True])
def test_progress_is_for_a_terminal(
    work: Work, in_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call(capsys)
    monkeypatch.setattr("sys.stderr.isatty", lambda: in_terminal)
    work.told[0](7)
    assert capsys.readouterr().err == ("\r7 letters sent" if in_terminal else "")


@pytest.mark.parametrize(
    ("in_terminal", "options", "blank"),
    [(False, [], ""), (True, [], "\n"), (True, ["--dry-run"], ""), (True, ["--json"], "")],
)
def test_the_result_stands_on_a_line_of_its_own(
    work: Work,
    in_terminal: bool,
    options: list[str],
    blank: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: in_terminal)
    assert main(["pipeline", "redrive", "p.yaml", "f", *options]) == 0
    assert capsys.readouterr().err == blank


def test_without_letters_no_line_was_begun(
    work: Work, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr(work, "send", Outcome)
    assert main(["pipeline", "redrive", "p.yaml", "f"]) == 0
    told = "dead has no letters of orders that are meant and were not sent back before\n"
    assert capsys.readouterr() == (told, "")


@pytest.mark.parametrize("limit", ["0", "-1"])
def test_at_least_one_letter_is_sent(work: Work, limit: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "redrive", "p.yaml", "f", "--limit", limit]) == 2
    assert work.made == []
    call(capsys, "--limit", "1")
    assert work.made[0][2] == 1
