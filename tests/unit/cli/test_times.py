"""Moments as people write them, questions they are asked, and exit codes of what typer parses."""

from __future__ import annotations

import io
import signal
import sys

import pytest
import typer

from ottla.cli.confirming import agrees, confirm
from ottla.cli.failures import UsageError
from ottla.cli.terminal import examples, new_app, run_app
from ottla.cli.times import parse_time_ms
from tests.unit.cli.scripted import Pipe


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("0", 0),
        ("1500", 1500),
        ("9223372036854775807", (1 << 63) - 1),
        ("1970-01-01", 0),
        ("1970-01-02", 86_400_000),
        ("1970-01-01T00:00:01.234", 1234),
        ("1970-01-01T01:00+01:00", 0),
        ("1970-01-01T00:00:02Z", 2000),
    ],
)
def test_moments(text: str, time_ms: int) -> None:
    assert parse_time_ms("--t", text) == time_ms


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("9223372036854775808", "--t '9223372036854775808' is too far away"),
        ("1969-12-31T23:59:59.999", "--t '1969-12-31T23:59:59.999' is before 1970"),
        ("1970-01-01T00:00+00:01", "--t '1970-01-01T00:00+00:01' is before 1970"),
        (
            "-1",
            "--t '-1' is no time: write 2026-03-01, 2026-03-01T12:00 or 2026-03-01T12:00+01:00 (UTC without a zone), "
            "or milliseconds since 1970",
        ),
    ],
)
def test_what_is_no_moment(text: str, told: str) -> None:
    with pytest.raises(UsageError) as refusal:
        parse_time_ms("--t", text)
    assert str(refusal.value) == told


@pytest.mark.parametrize(
    ("answer", "agreed"),
    [("y\n", True), ("Yes\n", True), (" y \n", True), ("", False), ("n\n", False), ("yy\n", False)],
)
def test_only_a_yes_is_agreement(
    answer: str, agreed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    handlers: list[object] = []

    class Terminal:
        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            handlers.append(signal.getsignal(signal.SIGINT))
            return answer

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(sys, "stdin", Terminal())
    assert agrees("Do it?") is agreed
    assert handlers == [signal.default_int_handler] and signal.getsignal(signal.SIGINT) is before
    assert capsys.readouterr() == ("", "Do it? [y/N] ")
    monkeypatch.setattr(sys, "stdin", Terminal())
    if agreed:
        confirm("Do it?", yes=False)
        assert capsys.readouterr().err == "Do it? [y/N] "
    else:
        with pytest.raises(SystemExit) as end:
            confirm("Do it?", yes=False)
        assert (end.value.code, capsys.readouterr().err) == (1, "Do it? [y/N] Nothing was changed.\n")


def test_a_question_is_seen_before_the_answer_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Pipe()
    seen: list[str] = []

    class Terminal:
        def readline(self) -> str:
            seen.append(pipe.arrived)
            return "y\n"

    monkeypatch.setattr(sys, "stderr", pipe)
    monkeypatch.setattr(sys, "stdin", Terminal())
    assert agrees("Do it?") and seen == ["Do it? [y/N] "]


def test_where_nobody_can_be_asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(UsageError, match=r"^Do it\? Nobody can be asked here: add --yes to do it\.$"):
        confirm("Do it?", yes=False)
    confirm("Do it?", yes=True)
    assert sys.stdin.readline() == "y\n" and capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("ending", "code"),
    [(None, 0), (SystemExit(), 0), (SystemExit(0), 0), (SystemExit(7), 7), (SystemExit("a sentence"), 1)],
    ids=str,
)
def test_exit_codes(ending: SystemExit | None, code: int) -> None:
    app = new_app()

    def command() -> None:
        if ending is not None:
            raise ending

    app.command()(command)
    assert run_app(app, "x", []) == code


def test_mistakes_are_told_under_the_name_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    app: typer.Typer = new_app()
    app.command()(lambda: None)
    assert run_app(app, "x", ["--nonsense"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("Usage: ottla x [OPTIONS]\n") and "No such option: --nonsense" in error
    for flag in ("-h", "--help"):
        assert run_app(app, "x", [flag]) == 0
        shown = capsys.readouterr().out
        assert "--install-completion" not in shown and "╭" not in shown


def test_examples_stand_below() -> None:
    assert examples(["run a", "check b"]) == "\b\nExamples:\n  ottla pipeline run a\n  ottla pipeline check b"
