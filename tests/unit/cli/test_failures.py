"""How commands end when something goes wrong: what is said, and the exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from ottla.base.errors import ErrorCode, InvalidConfigError, KafkaError, OttlaError
from ottla.cli.failures import UsageError, errors_told, nearest, parse_pairs, run_client, run_program
from ottla.client.errors import ClientError


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (KeyboardInterrupt(), 130, ""),
        (OSError(2, "No such file or directory", "f"), 1, "f: no such file or directory\n"),
        (OSError(28, "No space left on device"), 1, "input or output: no space left on device\n"),
        (OSError("Odd"), 1, "input or output: odd\n"),
        (UsageError("used wrongly"), 2, "used wrongly\n"),
        (InvalidConfigError("acks", "acks is set wrongly"), 2, "acks is set wrongly\n"),
        (KafkaError("refused", code=ErrorCode.INVALID_REQUEST), 1, "refused\n"),
        (ClientError("refused", code=ErrorCode.INVALID_REQUEST), 1, "refused\n"),
        (OttlaError("went wrong"), 1, "went wrong\n"),
        (ValueError("no number"), 1, "no number\n"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_is_one_sentence(
    error: BaseException, code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work() -> None:
        raise error

    def program() -> int:
        raise error

    def block() -> None:
        with errors_told():
            raise error

    ways: list[Callable[[], object]] = [lambda: run_client(work()), lambda: run_program(program), block]
    for way in ways:
        with pytest.raises(SystemExit) as end:
            way()
        assert (end.value.code, capsys.readouterr().err) == (code, told)


def test_our_own_mistakes_are_not_hidden_from_a_block() -> None:
    with pytest.raises(KeyError), errors_told():
        raise KeyError


@pytest.mark.parametrize("code", [0, 1, 7])
def test_a_program_ends_with_the_code_of_its_work(code: int) -> None:
    with pytest.raises(SystemExit) as end:
        run_program(lambda: code)
    assert end.value.code == code


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_stream_that_is_closed_takes_what_it_is_given(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, name, None)
    kept = []

    def work() -> int:
        stream = getattr(sys, name)
        kept.append(stream)
        return 0 if stream.write("lost") == 4 else 1

    with pytest.raises(SystemExit) as end:
        run_program(work)
    assert end.value.code == 0 and kept[0].name > 2
    kept[0].close()


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("ordes", ["orders", "other"], "; did you mean 'orders'?"),
        ("x", ["orders"], ""),
        ("x", [], ""),
    ],
)
def test_the_nearest_name_is_perhaps_meant(name: str, known: list[str], hint: str) -> None:
    assert nearest(name, known) == hint


def test_pairs_of_names_and_values() -> None:
    assert parse_pairs("--o", ["a=1", "b=", "c=d=e", "a=2"]) == {"a": "2", "b": "", "c": "d=e"}
    assert parse_pairs("--o", []) == {}
    for wrong in ("a", "", "=1"):
        with pytest.raises(UsageError, match=f"^--o '{wrong}' is not of the form name=value$"):
            parse_pairs("--o", [wrong])
