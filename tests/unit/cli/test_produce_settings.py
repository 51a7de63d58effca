"""What the options of `ottla produce` come to. Nobody is connected to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.cli import produce
from ottla.cli.failures import UsageError
from ottla.cli.produce import Settings, _settings, main, parser

SERVER = ["--bootstrap-server", "h:1"]


def settings(*arguments: str, kafka: str = "") -> Settings:
    made = parser(kafka)
    options = made.read([*arguments, *SERVER])
    made.take_topic(options)
    return _settings(options)


def test_without_options() -> None:
    found = settings("t")
    assert (found.topic, found.sync) == ("t", False)
    expected = {
        "bootstrap.servers": "h:1",
        "acks": "all",
        "compression.type": "none",
        "enable.idempotence": "true",
        "batch.size": "16384",
        "request.timeout.ms": "30000",
        "max.block.ms": "60000",
        "linger.ms": "0",
        "max.request.size": "33554432",
        "delivery.timeout.ms": "120000",
    }
    assert expected.items() <= found.config.items()
    assert settings("--topic", "t", "--sync").sync


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--compression-codec"], {"compression.type": "gzip"}),
        (["--compression-codec", "zstd"], {"compression.type": "zstd"}),
        (["--compression-codec", "none"], {"compression.type": "none"}),
        (["--request-required-acks", "-1"], {"acks": "all", "enable.idempotence": "true"}),
        (["--request-required-acks", "1"], {"acks": "1", "enable.idempotence": "false"}),
        (["--request-required-acks", "0"], {"acks": "0", "enable.idempotence": "false"}),
        (["--producer-property", "acks=-1"], {"acks": "-1", "enable.idempotence": "true"}),
        (["--producer-property", "acks=1"], {"acks": "1", "enable.idempotence": "false"}),
        (["--batch-size", "5"], {"batch.size": "5"}),
        (["--max-block-ms", "5"], {"max.block.ms": "5"}),
        (["--timeout", "5"], {"linger.ms": "5"}),
        (["--request-timeout-ms", "5"], {"request.timeout.ms": "5", "delivery.timeout.ms": "120000"}),
        (["--request-timeout-ms", "120001"], {"request.timeout.ms": "120001", "delivery.timeout.ms": "120001"}),
    ],
)
def test_how_it_is_sent(arguments: list[str], expected: dict[str, str]) -> None:
    assert expected.items() <= settings("t", *arguments).config.items()


def test_client_settings_come_from_several_places(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("linger.ms=1\nbuffer.memory=2\nretries=3\n")
    second.write_text("linger.ms=4\nbuffer.memory=5\n")
    files = ("--command-config", str(first), "--producer.config", str(second))
    found = settings("t", *files, "--producer-property", "linger.ms=6", "--timeout", "7")
    assert {"linger.ms": "6", "buffer.memory": "5", "retries": "3"}.items() <= found.config.items()


def test_lines_are_read_as_properties_say(tmp_path: Path) -> None:
    path = tmp_path / "reader"
    path.write_text("parse.key=true\nkey.separator=;\n")
    found = settings("t", "--reader-config", str(path), "--property", "key.separator=:").parser
    line = found.parse(b"k:v", 1)
    assert (line.key, line.value) == (b"k", b"v")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--compression-codec", "rar"], "--compression-codec 'rar' is not one of none, gzip, snappy, lz4, zstd"),
        (["--request-required-acks", "2"], "--request-required-acks '2' is not one of all, -1, 0, 1"),
        (["--line-reader", "mine"], "--line-reader 'mine': lines are read as --property says"),
        (["--property", "pars.key=true"], "pars.key"),
    ],
)
def test_what_cannot_be_meant(arguments: list[str], told: str) -> None:
    with pytest.raises(UsageError) as refusal:
        settings("t", *arguments)
    assert told in str(refusal.value)


def test_under_kafkas_name_unknown_properties_say_nothing() -> None:
    line = settings("--topic", "t", "--property", "pars.key=true", kafka="kafka-console-producer.sh").parser.parse(
        b"a", 1
    )
    assert (line.key, line.value) == (None, b"a")
    kafkas = "kafka.tools.ConsoleProducer$LineMessageReader"
    assert settings("t", "--line-reader", kafkas).topic == "t"


@pytest.mark.parametrize(
    ("kafka", "arguments", "told", "code"),
    [
        ("", [], "which topic is not said", 2),
        ("kafka-console-producer.sh", [], 'Missing required argument "[topic]"', 1),
        ("", ["t", "--producer.config", "/no/such/file"], "/no/such/file: no such file or directory", 2),
        ("", ["t", "--compression-codec", "rar"], "is not one of", 2),
        ("", ["t", "--topic", "u"], "the topic is named twice", 2),
    ],
)
def test_mistakes_are_one_sentence(
    kafka: str, arguments: list[str], told: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main([*arguments, *SERVER], kafka)
    assert end.value.code == code
    assert told in capsys.readouterr().err.splitlines()[-1]


def test_what_is_right_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []

    async def run(settings: Settings) -> None:
        taken.append(settings.topic)

    monkeypatch.setattr(produce, "_run", run)
    assert main(["t", *SERVER]) == 0
    assert main(["--topic", "u", *SERVER], "kafka-console-producer.sh") == 0
    assert taken == ["t", "u"]
