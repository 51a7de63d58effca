"""Asking before something is done that cannot be undone."""

from __future__ import annotations

import signal
import sys

from ottla.cli.failures import UsageError, fail


def confirm(question: str, *, yes: bool) -> None:
    """Returns if it is to be done. Where nobody can answer, only `--yes` is an answer."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Nobody can be asked here: add --yes to do it.")
    if not agrees(question):
        fail("Nothing was changed.")


def agrees(question: str) -> bool:
    """What whoever sits at the terminal says."""
    # An event loop takes Ctrl-C as the end of what awaits, and nothing awaits here: it has to end the reading.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
    finally:
        signal.signal(signal.SIGINT, before)
    return answer.strip().lower() in ("y", "yes")
