"""What the options of `ottla consume` come to, and which of them do not go together. Nobody is connected to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.cli import consume
from ottla.cli.consume import EARLIEST, LATEST, Settings, _settings, main, parse_start, parser
from ottla.cli.failures import UsageError


def settings(*arguments: str, kafka: str = "") -> Settings:
    made = parser(kafka)
    options = made.read([*arguments, "--bootstrap-server", "h:1"])
    made.take_topic(options)
    return _settings(options)


def test_without_options_what_comes_from_now_on_is_printed() -> None:
    found = settings("t")
    expected = Settings("t", None, None, LATEST, None, None, found.format, found.config)
    assert found == expected
    own = {"max.poll.records": "10000", "auto.offset.reset": "latest", "bootstrap.servers": "h:1"}
    assert own.items() <= found.config.items()
    assert "group.id" not in found.config and "isolation.level" not in found.config


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--from-beginning"], {"start": EARLIEST}),
        (["--partition", "0"], {"partition": 0}),
        (["--partition", "3", "--offset", "0"], {"partition": 3, "start": 0}),
        (["--partition", "3", "--offset", "earliest"], {"start": EARLIEST}),
        (["--partition", "3", "--offset", "latest"], {"start": LATEST}),
        (["--max-messages", "0", "--timeout-ms", "0"], {"max_messages": 0, "timeout_ms": 0}),
        (["--tail", "0"], {"tail": 0}),
        (["--from-time", "2020-01-01T00:00Z"], {"from_time_ms": 1_577_836_800_000}),
        (["--group", "g"], {"group": "g"}),
        (["--group", "g", "--from-beginning"], {"group": "g", "start": EARLIEST}),
        (["--skip-message-on-error"], {"skips_bad_records": True, "tells_end": False}),
        (["--enable-systest-events"], {"skips_bad_records": False, "tells_end": True}),
    ],
)
def test_what_is_asked_for(arguments: list[str], expected: dict[str, Any]) -> None:
    found = settings("t", *arguments)
    assert {name: getattr(found, name) for name in expected} == expected
    assert found.kafka is False


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["t", "--max-messages", "-1"], "--max-messages must not be negative"),
        (["t", "--timeout-ms", "-1"], "--timeout-ms must not be negative"),
        (["t", "--tail", "-1"], "--tail must not be negative"),
        (["t", "--partition", "-1"], "there is no partition -1"),
        (["t", "--from-beginning", "--tail", "0"], "--offset and --from-beginning, --from-time and --tail cannot"),
        (["t", "--from-time", "2020-01-01", "--tail", "1"], "--offset and --from-beginning, --from-time and --tail"),
        (["t", "--partition", "0", "--offset", "0", "--from-beginning"], "--offset and --from-beginning, --from-time"),
        (["t", "--group", "g", "--partition", "0"], "with --group, the group's offsets say where to start"),
        (["t", "--group", "g", "--tail", "1"], "with --group, the group's offsets say where to start"),
        (["t", "--group", "g", "--from-time", "2020-01-01"], "with --group, the group's offsets say where to start"),
        (["t", "--group", "g", "--offset", "1"], "with --group, the group's offsets say where to start"),
        (["t", "--offset", "1"], "--offset needs --partition"),
        (["t", "--partition", "0", "--offset", "-1"], "--offset '-1' is neither a number nor earliest or latest"),
        (["t", "--grep", "("], "--grep '(' is not a regular expression"),
        (["--include", "("], "--include '(' is not a regular expression"),
        ([], "name either a --topic or topics to --include"),
        (["t", "--include", "u"], "name either a --topic or topics to --include"),
        (["t", "--from-time", "soon"], "--from-time"),
        (["t", "--formatter", "nonsense"], "nonsense"),
        (
            ["t", "--from-beginning", "--consumer-property", "auto.offset.reset=latest"],
            "Can't simultaneously specify --from-beginning and 'auto.offset.reset=latest'",
        ),
        (["t", "--group", "g", "--consumer-property", "group.id=h"], "Detected group ids: 'g', 'h'"),
    ],
)
def test_what_does_not_go_together(arguments: list[str], told: str) -> None:
    with pytest.raises(UsageError) as refusal:
        settings(*arguments)
    assert told in str(refusal.value)


def test_client_settings_come_from_several_places(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("group.id=first\nfetch.min.bytes=1\nmax.poll.records=7\nclient.rack=r\n")
    second.write_text("group.id=second\nfetch.min.bytes=2\n")
    found = settings(
        *("t", "--command-config", str(first), "--consumer.config", str(second)),
        *("--consumer-property", "fetch.min.bytes=3", "--isolation-level", "read_committed"),
    )
    expected = {
        "group.id": "second",
        "fetch.min.bytes": "3",
        "max.poll.records": "7",
        "client.rack": "r",
        "isolation.level": "read_committed",
    }
    assert expected.items() <= found.config.items() and found.group == "second"
    same = settings("t", "--group", "second", "--consumer.config", str(second))
    assert (same.group, same.config["group.id"]) == ("second", "second")
    beginning = ("t", "--from-beginning", "--consumer-property", "auto.offset.reset=earliest")
    assert settings(*beginning).config["auto.offset.reset"] == "earliest"
    assert settings("t", "--partition", "0", "--offset", "5").config["auto.offset.reset"] == "none"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "Exactly one of --include/--topic is required."),
        (["--topic", "t", "--include", "u"], "Exactly one of --include/--topic is required."),
        (["--include", "u", "--partition", "0"], "The topic is required when partition is specified."),
        (["--topic", "t", "--offset", "0"], "The partition is required when offset is specified."),
        (
            ["--topic", "t", "--partition", "0", "--offset", "0", "--from-beginning"],
            "Options from-beginning and offset cannot be specified together.",
        ),
        (["--topic", "t", "--partition", "0", "--offset", "x"], "The provided offset value 'x' is incorrect."),
        (
            ["--topic", "t", "--partition", "0", "--group", "g"],
            "Options group and partition cannot be specified together.",
        ),
    ],
)
def test_under_kafkas_name_kafkas_words_are_said(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main([*arguments, "--bootstrap-server", "h:1"], kafka="kafka-console-consumer")
    assert end.value.code == 1
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("offset", [None, "0", "earliest", "latest"])
def test_under_kafkas_name_right_options_are_taken(monkeypatch: pytest.MonkeyPatch, offset: str | None) -> None:
    taken: list[Settings] = []

    async def run(settings: Settings) -> None:
        taken.append(settings)

    monkeypatch.setattr(consume, "_run", run)
    place = [] if offset is None else ["--partition", "0", "--offset", offset]
    arguments = ["--topic", "t", *place, "--bootstrap-server", "h:1"]
    assert main(arguments, kafka="kafka-console-consumer") == 0
    assert taken[0].kafka and taken[0].start == {None: LATEST, "0": 0, "earliest": EARLIEST, "latest": LATEST}[offset]


@pytest.mark.parametrize(
    ("offset", "from_beginning", "start"),
    [(None, True, -2), (None, False, -1), ("earliest", False, -2), ("latest", False, -1), ("7", False, 7)],
)
def test_where_it_starts(offset: str | None, from_beginning: bool, start: int) -> None:
    assert parse_start(offset, 0, from_beginning=from_beginning) == start


def test_two_places_to_start_are_refused() -> None:
    with pytest.raises(UsageError, match="cannot both be given"):
        parse_start("0", 0, from_beginning=True)


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["t", "--consumer.config", "/no/such/file", "--bootstrap-server", "h:1"])
    assert "/no/such/file: no such file or directory" in capsys.readouterr().err
