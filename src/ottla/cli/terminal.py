"""What the commands that typer parses share: one look of their help, and exit codes."""

from __future__ import annotations

from collections.abc import Iterable

import typer


def new_app() -> typer.Typer:
    """One look for the help of every command: plain, because tables cut the names of options at 80 columns."""
    return typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def examples(commands: Iterable[str]) -> str:
    """The end of a pipeline command's help; without the mark at its beginning it would be filled to one paragraph."""
    return "\b\nExamples:\n" + "\n".join(f"  ottla pipeline {command}" for command in commands)


def run_app(app: typer.Typer, name: str, arguments: list[str]) -> int:
    try:
        app(arguments, prog_name=f"ottla {name}")
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else 0 if e.code is None else 1
    return 0
