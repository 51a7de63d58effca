"""What the client commands share: running one, telling its errors in a sentence, and choosing how output looks."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any, NoReturn

import typer

from ottla.base.environment import BOOTSTRAP_SERVERS
from ottla.base.errors import KafkaError, OttlaError
from ottla.client.errors import ClusterUnreachableError

DEFAULT_BOOTSTRAP_SERVER = "127.0.0.1:9092"
BootstrapServer = Annotated[str, typer.Option(envvar=BOOTSTRAP_SERVERS, help="host:port of a broker, or several")]
INTERRUPTED = 130
BROKEN_PIPE = 141


class Output(StrEnum):
    AUTO = "auto"
    TABLE = "table"
    KAFKA = "kafka"
    JSON = "json"

    def resolve(self) -> Output:
        """A table for people, Kafka's own text for programs that read it."""
        if self is Output.AUTO:
            return Output.TABLE if sys.stdout.isatty() else Output.KAFKA
        return self


class UsageError(OttlaError):
    """The options do not make sense together; the message is one sentence."""


def run_command(name: str, function: Callable[..., None], arguments: list[str]) -> int:
    """Parses `arguments` for `function` and runs it; returns the exit code."""
    app = new_app()
    app.command()(function)
    return run_app(app, name, arguments)


def new_app() -> typer.Typer:
    """One look for the help of every command: plain, because tables cut the names of options at 80 columns."""
    return typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def run_app(app: typer.Typer, name: str, arguments: list[str]) -> int:
    try:
        app(arguments, prog_name=f"ottla {name}")
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else 0 if e.code is None else 1
    return 0


def run_client(work: Coroutine[Any, Any, None]) -> None:
    """Runs a command's asynchronous work."""
    with errors_told():
        asyncio.run(work)


@contextmanager
def errors_told() -> Iterator[None]:
    """What can go wrong outside this program ends in one sentence and exit code 1."""
    try:
        yield
        sys.stdout.flush()
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:
        # The reader of our output has gone. Nothing may be flushed to it at exit, which would fail once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(BROKEN_PIPE) from None
    except OSError as e:
        fail(f"{e.filename or 'input or output'}: {(e.strerror or str(e)).lower()}")
    except (OttlaError, ValueError) as e:
        fail(sentence(e))


def sentence(error: Exception) -> str:
    if isinstance(error, ClusterUnreachableError):
        return f"{error.summary}. Is a broker running? Start one with `ottla start`."
    return error.message if isinstance(error, KafkaError) else str(error)


def fail(message: str) -> NoReturn:
    print(message, file=sys.stderr)
    raise SystemExit(1)


def parse_pairs(option: str, pairs: list[str]) -> dict[str, str]:
    """`name=value` pairs of an option that can be repeated."""
    parsed: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} {pair!r} is not of the form name=value")
        parsed[name] = value
    return parsed
