"""What is given to commands and makes no sense: one sentence, exit code 2, and never a traceback."""

from __future__ import annotations

import random
import socket
from argparse import Action
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from ottla.cli.failures import fail, run_client, run_program
from ottla.cli.main import COMMANDS, main
from ottla.cli.session import client_config
from tests.unit.cli.commands import Commands

BINARY = b"\x7fELF\xd0\xff"
CALLS = 400
"""Enough that every command meets several pieces of garbage."""


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("topics list -b a:b:c", "bootstrap.servers: 'a:b:c' is not of the form host:port"),
        ("consume x --consumer-property foo=1", "unknown consumer setting foo"),
        ("consume x --property print.kye=1", "Error: unknown format setting print.kye; did you mean print.key?"),
        ("produce x --producer-property acks=7", "acks must be one of all, -1, 0, 1, but was '7'"),
        ("groups list --timeout -5", "default.api.timeout.ms must be at least 0, but was '-5'"),
        ("configs describe topicz x", "Invalid entity type topicz, "),
        ("configs describe topicz x", "; did you mean 'topics'?"),
        ("offsets x --time 1066-01-01", "--time '1066-01-01' is before 1970"),
        ("offsets x --time 99999999999999999999", "--time '99999999999999999999' is too far away"),
        ("consume x --from-time 0001-01-01", "--from-time '0001-01-01' is before 1970"),
    ],
)
def test_exit_code_2_and_what_is_wrong(command: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(command.split()) == 2
    assert says in capsys.readouterr().err


def code_of(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as end:
        run_program(lambda: main(arguments))
    assert isinstance(end.value.code, int)
    return end.value.code


@pytest.mark.parametrize(
    "command",
    [
        "groups reset-offsets g --from-file F",
        "reassign verify F",
        "elect-leaders --path-to-json-file F",
        "delete-records --offset-json-file F",
        "topics list --command-config F",
        "users set bob --password-file F",
    ],
)
def test_a_file_that_is_no_text_is_named(ottla: Commands, command: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(BINARY)
    code, shown, error = ottla(*[str(file) if word == "F" else word for word in command.split()])
    assert (code, shown) == (2, "")
    assert error == f"{file} is no text in UTF-8: byte 4 is 0xd0\n"


def test_a_file_without_a_password(ottla: Commands, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    code, _, error = ottla("users", "set", "bob", "--password-file", str(tmp_path / "empty"))
    assert (code, error) == (2, f"{tmp_path / 'empty'} is empty\n")


@pytest.mark.parametrize(
    ("command", "says"),
    [("reassign verify F", "nested too deeply"), ("delete-records --offset-json-file F", "not a valid JSON")],
)
def test_json_that_is_nested_without_end(ottla: Commands, command: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "deep.json"
    file.write_text("[" * 100_000)
    code, _, error = ottla(*[str(file) if word == "F" else word for word in command.split()])
    assert code in (1, 2) and says in error and error.count("\n") == 1


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of somebody who picks up and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("command", ["topics list", "groups list", "consume x", "produce x", "perf consume x"])
def test_a_server_that_does_not_answer_is_not_waited_for(
    command: str, silent: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("socket.connection.setup.timeout.ms=50\n")
    assert code_of([*command.split(), "-b", silent, "--command-config", str(file)]) == 1
    says = f"cannot reach {silent}: no answer to API_VERSIONS within 50 ms. Is a broker running?"
    assert says in capsys.readouterr().err


def test_people_wait_seconds() -> None:
    assert int(client_config(None, "a:1", "me")["socket.connection.setup.timeout.ms"]) <= 5000


def test_a_mistake_of_ours_is_a_sentence_too(capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> None:
        raise IndexError("list index out of range")

    with pytest.raises(SystemExit) as end:
        run_client(work())
    assert end.value.code == 1
    error = capsys.readouterr().err
    assert error.startswith("a mistake in ottla, test_wrong_use.py, line ") and "IndexError: list index" in error
    assert error.count("\n") == 1


GARBAGE = [
    *("", "-1", "0", "99999999999999999999", "x", "x:0", "a=b", "=", "[", "\0", "/", "/dev/null", "/no/file", "é"),
    *("\udcff", "null", "{}", "1.5", "earliest", "PT1H", "0001-01-01", "9999-12-31T23:59:59", "*", ",", ":", "1,2"),
]


def test_garbage_never_ends_in_a_traceback(ottla: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    """Seeded, so that what fails can be seen again."""
    chance = random.Random(17)
    names = [name for name in COMMANDS if name not in ("demo", "start", "zookeeper", "pipeline", "aliases")]
    for number in range(CALLS):
        arguments = garbage_for(names[number % len(names)], chance)
        code = code_of([*arguments, "-b", ottla.server] if arguments[0] != "completion" else arguments)
        said = capsys.readouterr()
        assert code in (0, 1, 2), arguments
        assert "mistake in ottla" not in said.err and "Traceback" not in said.err, arguments


def garbage_for(name: str, chance: random.Random) -> list[str]:
    made = import_module(COMMANDS[name].module).parser()
    arguments = [name]
    if made.verbs:
        arguments.append(chance.choice([verb for verb in made.verbs if verb not in ("restart", "delete")]))
    if chance.random() < 0.6:
        arguments.append(chance.choice(GARBAGE))
    options: list[Action] = [action for action in made._actions if action.option_strings and may_be_given(action)]
    for action in chance.sample(options, min(len(options), 3)):
        arguments.append(chance.choice(action.option_strings))
        if action.nargs != 0:
            arguments.append(chance.choice(GARBAGE))
    bounds = {"consume": ["--timeout-ms", "1"], "perf": ["--num-records", "1", "--timeout", "1"]}
    return [*arguments, *bounds.get(name, [])]


def may_be_given(action: Action) -> bool:
    """Not where it would ask somebody else, or go on for ever."""
    return not {"--bootstrap-server", "--bootstrap-servers", "--broker-list", "--watch"} & set(action.option_strings)


def test_nobody_is_told_twice(capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> None:
        fail("said once")

    with pytest.raises(SystemExit):
        run_client(work())
    assert capsys.readouterr().err == "said once\n"
