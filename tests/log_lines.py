"""Lines of a log in tests: only those of the part a test is about.

What a test has left behind, a client on its way out for one, may still write lines while the next one looks.
"""

from __future__ import annotations

import logging

import pytest


def lines_of(caplog: pytest.LogCaptureFixture, *loggers: str) -> list[logging.LogRecord]:
    """Of these loggers and those below them."""
    parts = tuple(f"{logger}." for logger in loggers)
    return [record for record in caplog.records if f"{record.name}.".startswith(parts)]


def messages_of(caplog: pytest.LogCaptureFixture, *loggers: str) -> list[str]:
    return [record.getMessage() for record in lines_of(caplog, *loggers)]
