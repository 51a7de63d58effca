"""The broker's log: what a line looks like, and which levels count for whom."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import pytest

from ottla.broker import access_docs
from ottla.broker.config.log_levels import LogLevels, level_named
from ottla.broker.logs import LineFormatter, describe_loggers, start_logging

NAMES = ("ottla.test_of_logs", "ottla.test_of_logs.below")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)
    for name in NAMES:
        logging.getLogger(name).setLevel(logging.NOTSET)


@contextmanager
def started(levels: list[str]) -> Iterator[StringIO]:
    """Without the handlers of pytest, which would be enough for `basicConfig`."""
    written = StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", written)
        patch.setattr(logging.getLogger(), "handlers", [])
        start_logging(levels)
        yield written


def test_a_line_has_time_level_area_and_message() -> None:
    with started(["INFO"]) as written:
        logging.getLogger(NAMES[0]).warning("topic %s is gone", "a\nb\r")
        logging.getLogger(NAMES[0]).debug("nobody asked")
    (line,) = written.getvalue().splitlines()
    assert line.endswith(f" WARNING {NAMES[0]}: topic a\\nb\\r is gone")
    record = logging.LogRecord("area", logging.INFO, "", 0, "words", None, None)
    assert LineFormatter().format(record).split(" ", 2)[2] == "INFO    area: words"


def test_levels_are_for_everything_or_for_what_is_below_a_name() -> None:
    with started(["ERROR", f" {NAMES[0]} =debug", f"{NAMES[1]}=TRACE"]):
        assert logging.getLogger().level == logging.ERROR
    assert [logging.getLogger(name).level for name in NAMES] == [logging.DEBUG, 5]
    assert describe_loggers([NAMES[0], "unheard of", NAMES[1], "root"]) == {
        NAMES[0]: "DEBUG",
        NAMES[1]: "TRACE",
        "root": "ERROR",
    }


def test_without_levels_everything_is_told_that_is_worth_it() -> None:
    with started([]):
        assert logging.getLogger().level == logging.INFO


@pytest.mark.parametrize(
    ("level", "name"),
    [(1, "TRACE"), (5, "TRACE"), (9, "TRACE"), (10, "DEBUG"), (29, "INFO"), (30, "WARN"), (40, "ERROR"), (60, "FATAL")],
)
def test_a_level_between_two_is_the_lower_one(level: int, name: str) -> None:
    logging.getLogger(NAMES[0]).setLevel(level)
    assert describe_loggers([NAMES[0]]) == {NAMES[0]: name}


@pytest.mark.parametrize(
    ("name", "level"),
    [("warn", 30), (" WARNING ", 30), ("Critical", 50), ("FATAL", 50), ("trace", 5), ("", None), ("LOUD", None)],
)
def test_levels_go_by_kafka_s_names_and_python_s(name: str, level: int | None) -> None:
    assert level_named(name) == level


@pytest.mark.parametrize(
    ("value", "is_fine"),
    [
        (("INFO",), True),
        (("INFO", "a.b=DEBUG"), True),
        (("INFO", "a.b=LOUD"), False),
        (("LOUD", "a.b=DEBUG"), False),
        ((), False),
        ("INFO", False),
    ],
)
def test_what_a_setting_of_levels_may_be(value: str | tuple[str, ...], is_fine: bool) -> None:
    rule = LogLevels()
    assert rule.problem(value) == (None if is_fine else f"must be {rule}")


@pytest.mark.parametrize("into_a_file", [True, False])
def test_the_page_of_permissions_is_written_where_it_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, into_a_file: bool
) -> None:
    written, path = StringIO(), tmp_path / "page.md"
    monkeypatch.setattr(sys, "stdout", written)
    monkeypatch.setattr(sys, "argv", ["access_docs", str(path)] if into_a_file else ["access_docs"])
    access_docs.main()
    found = path.read_text(encoding="utf-8") if into_a_file else written.getvalue()
    assert found == access_docs.document()
    assert path.exists() is into_a_file and bool(written.getvalue()) is not into_a_file
