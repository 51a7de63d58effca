"""The parts of the demonstration that need no Spark: its broker, its visitors, and what it shows."""

from __future__ import annotations

import io
import json
import signal
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from ottla import Consumer, TopicPartition
from ottla.base.errors import OttlaError, StartError
from ottla.cli.demo import running
from ottla.cli.demo.broker import OwnBroker
from ottla.cli.demo.counting import Counting, Progress
from ottla.cli.demo.screen import PageCounts, Results, Screen, read_results
from ottla.cli.demo.visitors import PAGES, PARTITIONS, TOPIC, Visitors, count_page_views
from ottla.spark.pipeline.flows.report import FlowReport
from tests.ports import free_port
from tests.waiting import repeat_until

NOW = datetime(2026, 3, 1, 12, 0, 27, tzinfo=UTC)


def counted(path: Path, *rows: tuple[str, str, int]) -> Path:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE views_per_page (page TEXT, since TEXT, views INTEGER)")
        connection.executemany("INSERT INTO views_per_page VALUES (?, ?, ?)", rows)
    connection.close()
    return path


def test_windows_of_ten_seconds_are_told_apart(tmp_path: Path) -> None:
    database = counted(
        tmp_path / "demo.db",
        ("/", "2026-03-01 12:00:00", 1),
        ("/", "2026-03-01 12:00:10", 20),
        ("/", "2026-03-01 12:00:20", 300),
        ("/help", "2026-03-01 12:00:10", 4),
    )
    assert read_results(database, NOW) == Results(325, {"/": PageCounts(20, 300, 321), "/help": PageCounts(4, 0, 4)})


def test_before_the_first_result_there_is_none(tmp_path: Path) -> None:
    assert read_results(tmp_path / "absent.db", NOW) == Results(0, {})
    sqlite3.connect(tmp_path / "empty.db").close()
    (tmp_path / "empty.db").touch()
    assert read_results(tmp_path / "empty.db", NOW) == Results(0, {})


def shown(console: Console, *updates: tuple[int, Results, FlowReport | None]) -> str:
    assert isinstance(console.file, io.StringIO)
    with Screen(console) as screen:
        for update in updates:
            screen.update(*update)
    return console.file.getvalue()


RESULTS = Results(1321, {"/help": PageCounts(0, 1, 1), "/": PageCounts(20, 300, 1320)})


def test_a_line_now_and_then_where_there_is_no_terminal() -> None:
    console = Console(file=io.StringIO(), width=200, force_terminal=False)
    text = shown(console, (2000, RESULTS, None), (3000, RESULTS, None))
    assert text == "2,000 page views sent, 1,321 counted so far; Spark is starting …\n"


def test_in_a_terminal_the_most_visited_page_stands_first() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None)
    text = shown(console, (2000, RESULTS, None))
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if "│" in line]
    assert rows[-2:] == [["/", "20", "300", "1,320"], ["/help", "0", "1", "1"]]
    assert "2,000 page views sent" in text


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("demo") / "data" / "broker"
    with OwnBroker(free_port(), directory) as broker:
        broker.wait(0.01)
        assert "listening on" in (directory.parent / "broker.log").read_text()
        yield broker.bootstrap_servers


def test_every_visit_is_sent_and_found_again(own_server: str) -> None:
    for before in (0, 1):
        with Visitors(own_server, rate=2000) as visitors:
            repeat_until(lambda: visitors.sent > 200)
        assert visitors.failure is None
        if not before:
            first = visitors.sent
    assert count_page_views(own_server) == first + visitors.sent
    with Consumer(bootstrap_servers=own_server, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])
        records = []
        repeat_until(lambda: len(records) >= first, lambda: records.extend(consumer.poll(0.1)))
    views = [json.loads(record.value or b"") for record in records]
    assert {view["page"] for view in views} <= set(PAGES)
    assert all(record.key == view["visitor"].encode() for record, view in zip(records, views, strict=True))
    assert len({view["visitor"] for view in views}) > 50
    assert len({record.partition for record in records}) == PARTITIONS


def test_a_broker_that_cannot_start_says_why(own_server: str, tmp_path: Path) -> None:
    port = int(own_server.rpartition(":")[2])
    with (
        pytest.raises(StartError, match=r"the broker did not start: .*\b(in use|taken)"),
        OwnBroker(port, tmp_path / "b"),
    ):
        pass


def test_a_broker_that_has_gone_is_told_of(tmp_path: Path) -> None:
    with OwnBroker(free_port(), tmp_path / "broker") as broker:
        assert broker._process is not None
        broker._process.kill()
        with pytest.raises(StartError, match="the broker has stopped: "):
            broker.wait(30)


def test_ctrl_c_is_the_ordinary_end_and_a_second_one_is_none() -> None:
    before = signal.getsignal(signal.SIGINT)
    with running._end_by_ctrl_c() as end:
        assert not end.is_set()
        signal.raise_signal(signal.SIGINT)
        assert end.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("failure", [None, OttlaError("no Java")])
def test_why_counting_has_failed_is_raised(failure: OttlaError | None) -> None:
    class Pipeline:
        def run(self, **_: object) -> None:
            if failure is not None:
                raise failure

    counting = object.__new__(Counting)
    counting._failure, counting._pipeline = None, Pipeline()  # type: ignore[assignment]
    counting._log_file, counting.progress = Path("spark.log"), Progress()
    counting._run()
    if failure is None:
        counting.raise_failure()
    else:
        with pytest.raises(OttlaError, match="no Java"):
            counting.raise_failure()


def test_it_runs_until_there_are_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "time", SimpleNamespace(monotonic=lambda: 100.0))
    assert not running._is_over(None, 5)
    assert running._is_over(99.0, counted=1)
    assert not running._is_over(101.0, counted=1)
    assert not running._is_over(99.0, counted=0)
    assert running._is_over(99.0 - running._FIRST_RESULT_TIMEOUT_S, counted=0)


@pytest.mark.parametrize(("counted", "verdict"), [(1000, "none lost, none counted twice"), (999, "at the next start")])
def test_the_end_compares_what_was_sent_with_what_was_counted(counted: int, verdict: str) -> None:
    console = Console(file=io.StringIO(), width=80)
    running._conclude(console, 1000, counted, Path("demo.db"))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().startswith(f"{TOPIC} holds 1,000 page views, demo.db counts {counted:,}: ")
    assert verdict in console.file.getvalue()
