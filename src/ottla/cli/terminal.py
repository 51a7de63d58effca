"""What the client commands share: running one, telling its errors in a sentence, and choosing how output looks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from ottla.base.environment import BOOTSTRAP_SERVERS
from ottla.cli.failures import UsageError, errors_told, fail, misuse, parse_pairs, run_client, sentence
from ottla.cli.parsing import DEFAULT_BOOTSTRAP_SERVER
from ottla.cli.rows import Output

__all__ = [
    "DEFAULT_BOOTSTRAP_SERVER",
    "BootstrapServer",
    "Output",
    "UsageError",
    "errors_told",
    "fail",
    "misuse",
    "new_app",
    "parse_pairs",
    "run_app",
    "run_client",
    "run_command",
    "sentence",
]

BootstrapServer = Annotated[str, typer.Option(envvar=BOOTSTRAP_SERVERS, help="host:port of a broker, or several")]


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
