"""Asking before something is done that cannot be undone."""

from __future__ import annotations

import sys

from ottla.cli.failures import UsageError, fail


def confirm(question: str, *, yes: bool) -> None:
    """Returns if it is to be done. Where nobody can answer, only `--yes` is an answer."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Nobody can be asked here: add --yes to do it.")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        fail("Nothing was changed.")
