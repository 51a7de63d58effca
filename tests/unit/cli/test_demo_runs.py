"""What `ottla demo` starts, how long it goes on, and how it ends. Its parts and the clock are scripted."""

from __future__ import annotations

import signal
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")


from ottla.base.errors import OttlaError
from ottla.cli.demo import counting as counting_module
from ottla.cli.demo import running, screen
from ottla.cli.demo.counting import Progress
from ottla.cli.demo.screen import Results
from ottla.spark.sessions import SparkUnavailableError


class Demo:
    """All parts at once. Every look at the clock lasts a second."""

    def __init__(self) -> None:
        self.now = 100.0
        self.calls: list[Any] = []
        self.waits = 0
        self.counted = [0]
        """At each look; the last stays."""
        self.in_topic = 7
        self.sent = 5
        self.is_running = True
        self.progress = Progress()
        self.failure: OttlaError | None = None
        self.fails_at = 0
        self.interrupts_at = 0
        self.bootstrap_servers = "127.0.0.1:9093"

    def monotonic(self) -> float:
        return self.now

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wait(self, timeout_s: float) -> None:
        assert timeout_s == 0.25
        self.waits += 1
        assert self.waits < 1000
        self.now += 1
        if self.waits == self.interrupts_at:
            signal.raise_signal(signal.SIGINT)

    def update(self, sent: int, results: Results, report: object) -> None:
        self.calls.append(("shown", sent, results.counted, report))

    def tell(self, sentence: str) -> None:
        self.calls.append(sentence)

    def stop(self) -> None:
        self.calls.append("stop")

    def raise_failure(self) -> None:
        if self.failure is not None and self.waits >= self.fails_at:
            raise self.failure

    def count(self, servers: str) -> int:
        assert servers == self.bootstrap_servers
        return self.in_topic

    def read(self, database: Path, now: datetime) -> Results:
        assert database.name == "demo.db" and now.tzinfo is not None
        return Results(self.counted.pop(0) if len(self.counted) > 1 else self.counted[0], {})

    def shown(self) -> list[int]:
        return [call[2] for call in self.calls if isinstance(call, tuple) and call[0] == "shown"]


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> Demo:
    made = Demo()

    def open_as(name: str) -> Any:
        def open_(*arguments: object) -> Demo:
            made.calls.append((name, *arguments))
            return made

        return open_

    monkeypatch.setattr(running, "OwnBroker", open_as("broker"))
    monkeypatch.setattr(running, "Visitors", open_as("visitors"))
    monkeypatch.setattr(counting_module, "Counting", open_as("counting"))
    monkeypatch.setattr(screen, "Screen", lambda console: made)
    monkeypatch.setattr(screen, "read_results", made.read)
    monkeypatch.setattr(running, "count_page_views", made.count)
    monkeypatch.setattr(running, "require_spark", lambda: None)
    monkeypatch.setattr(running, "time", SimpleNamespace(monotonic=made.monotonic))
    monkeypatch.setenv("COLUMNS", "300")
    return made


def test_what_is_begun_and_how_it_ends(demo: Demo, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo.counted = [0, 3, 3, 3, 5, 7]
    demo.progress.restarts.extend(["one", "two"])
    running.run(9093, str(tmp_path), 200, 1.5)
    place = tmp_path / "pipeline"
    assert place.is_dir()
    began = [("broker", 9093, tmp_path / "broker"), ("counting", running.PIPELINE, "127.0.0.1:9093", place)]
    assert demo.calls[:5] == [*began, ("visitors", "127.0.0.1:9093", 200), "one", "two"]
    # Until it is over; then until all is counted.
    assert demo.shown() == [0, 3, 3, 3, 5, 7] and demo.waits == 4
    # The visitors, after which what they sent is counted, and then the pipeline.
    assert [call for call in demo.calls if call == "stop"] == ["stop", "stop"] and demo.calls[-1] == "stop"
    first, *lines, end = capsys.readouterr().out.splitlines()
    assert first == "A broker is listening on 127.0.0.1:9093. In another terminal, try:"
    assert lines == [
        "  ottla consume --bootstrap-server 127.0.0.1:9093 --topic demo.views-per-page --from-beginning",
        "  echo hello | ottla produce --bootstrap-server 127.0.0.1:9093 --topic greetings",
        f"The pipeline is {running.PIPELINE}; Ctrl-C stops everything.",
        "",
    ]
    assert end == (f"demo.page-views holds 7 page views, {place / 'demo.db'} counts 7: none lost, none counted twice.")


def test_ctrl_c_ends_it(demo: Demo, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo.interrupts_at, demo.counted = 3, [1, 1, 1, 7]
    running.run(9093, str(tmp_path), 200, None)
    assert demo.waits == 3 and demo.shown() == [1, 1, 1, 7]
    assert capsys.readouterr().out.splitlines()[-2] == "Stopping …"


def test_what_is_not_counted_is_not_waited_for_without_end(
    demo: Demo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demo.counted = [1]
    running.run(9093, str(tmp_path), 200, 0)
    # One second until it is over, and thirty to catch up.
    assert demo.waits == 1 + 30
    assert "counts 1: the rest will be counted at the next start." in capsys.readouterr().out


def test_nobody_waits_for_a_pipeline_that_has_ended(demo: Demo, tmp_path: Path) -> None:
    demo.counted, demo.is_running = [1], False
    running.run(9093, str(tmp_path), 200, 0)
    assert demo.waits == 1


@pytest.mark.parametrize("fails_at", [2, 5])
def test_a_pipeline_that_fails_ends_it(
    demo: Demo, fails_at: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demo.failure, demo.fails_at, demo.counted = OttlaError("no memory"), fails_at, [1]
    with pytest.raises(SystemExit) as end:
        running.run(9093, str(tmp_path), 200, 3 if fails_at == 2 else 0)
    assert end.value.code == 1 and capsys.readouterr().err == "no memory\n"
    assert demo.waits == (2 if fails_at == 2 else 31)


@pytest.mark.parametrize(("duration", "interrupts_at", "waits"), [(2.5, 0, 3), (None, 4, 4), (9, 4, 4), (2, 0, 3)])
def test_without_spark_only_the_broker_runs(
    demo: Demo,
    duration: float | None,
    interrupts_at: int,
    waits: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse() -> None:
        raise SparkUnavailableError("no [Java]")

    monkeypatch.setattr(running, "require_spark", refuse)
    demo.interrupts_at = interrupts_at
    running.run(9093, str(tmp_path), 200, duration)
    assert demo.waits == waits and not (tmp_path / "pipeline").exists()
    assert capsys.readouterr().out.splitlines()[-1] == "Only the broker runs: no [Java]."
