"""The parts of `ottla demo`, with what is around them scripted: processes, the cluster, Spark and the clock."""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
import threading
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from rich.console import Console

from ottla.base.errors import ErrorCode, KafkaError, StartError
from ottla.cli.demo import broker as broker_module
from ottla.cli.demo import counting as counting_module
from ottla.cli.demo import screen, visitors
from ottla.cli.demo.broker import OwnBroker
from ottla.cli.demo.counting import Counting, Progress
from ottla.cli.demo.screen import Results
from ottla.cli.demo.visitors import Visitors
from ottla.client.core.admin.types import NewTopic
from tests.waiting import PATIENCE_S

# The broker


class Process:
    """One that has said as much as its test wants, and ends when it is asked to, if it does."""

    def __init__(self) -> None:
        self.started: list[tuple[list[str], dict[str, Any]]] = []
        self.says = "a broker is listening on PLAINTEXT://x\n"
        self.code: int | None = None
        self.is_stubborn = False
        self.calls: list[Any] = []

    def __call__(self, command: list[str], **options: Any) -> Self:
        self.started.append((command, {name: options[name] for name in ("start_new_session",)}))
        assert options["stdout"] is options["stderr"]
        options["stdout"].write(self.says.encode())
        options["stdout"].flush()
        return self

    def poll(self) -> int | None:
        return self.code

    def terminate(self) -> None:
        self.calls.append("terminate")

    def kill(self) -> None:
        self.calls.append("kill")
        self.is_stubborn = False

    def wait(self, timeout_s: float | None = None) -> int:
        self.calls.append(timeout_s)
        if self.is_stubborn:
            raise subprocess.TimeoutExpired("broker", timeout_s or 0)
        return 0


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    made = Process()
    times = iter(range(0, 100_000, 10))
    monkeypatch.setattr(subprocess, "Popen", made)
    clock = SimpleNamespace(monotonic=lambda: next(times), sleep=lambda seconds: made.calls.append(("slept", seconds)))
    monkeypatch.setattr(broker_module, "time", clock)
    return made


def test_the_broker_has_a_place_and_a_session_of_its_own(process: Process, tmp_path: Path) -> None:
    place = tmp_path / "deep" / "broker"
    for _ in range(2):
        with OwnBroker(9093, place) as broker:
            assert broker.bootstrap_servers == "127.0.0.1:9093"
            assert process.calls == []
        assert process.calls == ["terminate", 30]
        process.calls.clear()
    command = [
        *(sys.executable, "-m", "ottla", "start"),
        *("--override", "listeners=PLAINTEXT://127.0.0.1:9093"),
        *("--override", f"log.dirs={place}"),
        *("--override", "group.initial.rebalance.delay.ms=0"),
    ]
    assert process.started == [(command, {"start_new_session": True})] * 2
    assert place.is_dir() and (tmp_path / "deep" / "broker.log").read_text() == process.says


def test_a_broker_that_does_not_end_is_killed(process: Process, tmp_path: Path) -> None:
    with OwnBroker(9093, tmp_path / "broker"):
        process.is_stubborn = True
    assert process.calls == ["terminate", 30, "kill", None]


@pytest.mark.parametrize(
    ("says", "told"),
    [("first\nlast words\n\n", "the broker did not start: last words"), ("", "the broker did not start: see {log}")],
)
def test_a_broker_that_ends_at_once(process: Process, says: str, told: str, tmp_path: Path) -> None:
    process.says, process.code = says, 1
    with pytest.raises(StartError) as failure, OwnBroker(9093, tmp_path / "broker"):
        pass
    assert str(failure.value) == told.format(log=tmp_path / "broker.log")
    assert process.calls == ["terminate", 30]


def test_a_broker_that_does_not_come_up(process: Process, tmp_path: Path) -> None:
    process.says = "starting\n"
    with pytest.raises(StartError, match=r"^the broker does not come up; see .*/broker\.log$"):
        OwnBroker(9093, tmp_path / "broker").__enter__()
    # Half a minute, in steps of ten seconds: the fourth is later than that.
    assert process.calls == [*[("slept", 0.05)] * 3, "terminate", 30]


def test_waiting_for_a_broker(process: Process, tmp_path: Path) -> None:
    with OwnBroker(9093, tmp_path / "broker") as broker:
        process.is_stubborn = True
        broker.wait(0.25)
        process.is_stubborn = False
        with pytest.raises(StartError, match=r"^the broker has stopped: a broker is listening on PLAINTEXT://x$"):
            broker.wait(0.25)
        assert process.calls == [0.25, 0.25]


def test_a_broker_that_was_not_started_need_not_be_stopped(tmp_path: Path) -> None:
    OwnBroker(9093, tmp_path / "broker").__exit__(None, None, None)


# The visitors


class Kept:
    """A cluster that keeps what it is sent, and what it is asked to make."""

    def __init__(self) -> None:
        self.settings: list[dict[str, Any]] = []
        self.created: list[Any] = []
        self.sent: list[tuple[str, dict[str, str], str]] = []
        self.refusal: KafkaError | None = None
        self.failure: KafkaError | None = None

    def open(self, **settings: Any) -> Self:
        self.settings.append(settings)
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def create_topics(self, topics: list[NewTopic]) -> Any:
        self.created.append(topics)
        return SimpleNamespace(errors={} if self.refusal is None else {"demo.page-views": self.refusal})

    def send(self, topic: str, value: bytes, *, key: bytes) -> None:
        if self.failure is not None:
            raise self.failure
        self.sent.append((topic, json.loads(value), key.decode()))


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    made = Kept()
    monkeypatch.setattr(visitors, "Admin", made.open)
    monkeypatch.setattr(visitors, "Producer", made.open)
    return made


def ticking(visiting: Visitors, monkeypatch: pytest.MonkeyPatch, *times_s: float) -> list[float]:
    """At each of the times it looks how many visits are due; after the last it is over. Returns how long it waited."""
    waits: list[float] = []
    left = iter([100.0, *(100 + at_s for at_s in times_s)])

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return len(waits) > len(times_s)

    monkeypatch.setattr(visiting, "_is_over", SimpleNamespace(wait=wait, set=lambda: None))
    monkeypatch.setattr(visitors, "time", SimpleNamespace(monotonic=lambda: next(left)))
    monkeypatch.setattr(visitors, "random", SimpleNamespace(Random=lambda: random.Random(5)))
    return waits


def test_so_many_visits_are_sent_as_are_due(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    visiting = Visitors("h:1", rate=64)
    waits = ticking(visiting, monkeypatch, 0.0625, 0.0625, 0.25)
    counts: list[int] = []
    monkeypatch.setattr(kept, "send", lambda *_, **__: counts.append(visiting.sent))
    visiting._run()
    # Those of a moment count once all of them are sent.
    assert counts == [0] * 4 + [4] * 12 and visiting.sent == 16
    assert waits == [0.05] * 4
    assert kept.settings == [{"bootstrap_servers": "h:1", "linger_ms": 20}]


def test_pages_are_seen_by_a_thousand_visitors_some_more_often_than_others(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    visiting = Visitors("h:1", rate=1000)
    ticking(visiting, monkeypatch, 3)
    visiting._run()
    chance = random.Random(5)
    pages = ("/", "/search", "/books", "/music", "/games", "/basket", "/checkout", "/help")
    for topic, view, key in kept.sent:
        visitor, (page,) = f"visitor-{chance.randrange(1000)}", chance.choices(pages, (30, 20, 14, 10, 9, 8, 5, 4))
        assert datetime.fromisoformat(view.pop("at")).tzinfo is not None
        assert (topic, view, key) == ("demo.page-views", {"visitor": visitor, "page": page}, visitor)
    assert len(kept.sent) == 3000


def test_visits_that_cannot_be_sent_end_it(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    visiting = Visitors("h:1", rate=100)
    ticking(visiting, monkeypatch, 1)
    kept.failure = KafkaError("gone", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    visiting._run()
    assert visiting.failure is kept.failure and visiting.sent == 0


@pytest.mark.parametrize("code", [None, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_visits_need_a_topic(kept: Kept, code: ErrorCode | None) -> None:
    kept.refusal = None if code is None else KafkaError("refused", code=code)
    visiting = Visitors("h:1", rate=1)
    if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        with pytest.raises(KafkaError, match="refused"):
            visiting.__enter__()
    else:
        with visiting:
            assert visiting._thread.daemon and visiting._thread.name == "visitors"
        assert not visiting._thread.is_alive() and visiting.failure is None
    assert kept.created == [[NewTopic("demo.page-views", 4)]]
    assert kept.settings[0] == {"bootstrap_servers": "h:1"}


# The counting


class Pipeline:
    """Runs until its runner is stopped."""

    def __init__(self) -> None:
        self.overrides: Any = None
        self.options: dict[str, Any] = {}
        self.stopped = threading.Event()
        self.starts = threading.Event()
        self.starts.set()

    def from_file(self, path: Path, overrides: list[tuple[str, str]]) -> Self:
        self.overrides = (path, overrides)
        return self

    def run(self, *, on_start: Any, **options: Any) -> None:
        self.options = options
        assert self.starts.wait(PATIENCE_S)
        on_start(SimpleNamespace(stop=self.stopped.set))
        assert self.stopped.wait(PATIENCE_S)


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    made = Pipeline()
    monkeypatch.setattr(counting_module, "Pipeline", made)
    return made


def test_the_pipeline_counts_in_a_place_of_its_own(pipeline: Pipeline, tmp_path: Path) -> None:
    with Counting(Path("p.yaml"), "h:1", tmp_path) as counting:
        assert counting._thread.daemon and counting._thread.name == "pipeline"
        ran = [counting.is_running]
    ran.append(counting.is_running)
    assert ran == [True, False] and pipeline.stopped.is_set()
    assert pipeline.overrides == (
        Path("p.yaml"),
        [
            ("kafka.bootstrap.servers", "h:1"),
            ("checkpoint", str(tmp_path / "checkpoints")),
            ("sinks.table.url", f"sqlite:{tmp_path / 'demo.db'}"),
        ],
    )
    assert pipeline.options == {"log_file": tmp_path / "spark.log", "observer": counting.progress}
    counting.raise_failure()


def test_a_pipeline_that_starts_after_the_end_is_stopped_at_once(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.starts.clear()
    counting = Counting(Path("p.yaml"), "h:1", tmp_path).__enter__()
    stopping = threading.Thread(target=counting.stop)
    stopping.start()
    assert counting._is_stopping.wait(PATIENCE_S)
    pipeline.starts.set()
    stopping.join(PATIENCE_S)
    assert not stopping.is_alive() and not counting.is_running


def test_progress_is_that_of_the_table() -> None:
    progress = Progress()
    first: Any = object()
    second: Any = object()
    progress.flow_progressed("to-topic", first)
    assert progress.report is None
    progress.flow_progressed("to-table", first)
    progress.flow_watched("to-topic", second)
    assert progress.report is first
    progress.flow_watched("to-table", second)
    assert progress.report is second
    progress.flow_restarting("f", "went wrong", failures=1, wait_ms=2000)
    assert len(progress.restarts) == 1 and "went wrong" in progress.restarts[0]


# The screen


def test_a_line_every_five_seconds_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(screen, "time", SimpleNamespace(monotonic=lambda: now[0]))
    console = Console(file=io.StringIO(), width=200, force_terminal=False)
    with screen.Screen(console) as shown:
        for at_s in (0.0, 4.9, 5.0, 9.9, 10.0):
            now[0] = 100 + at_s
            shown.update(int(at_s * 10), Results(1, {}), None)
        shown.tell("it [stays]")
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["0", "50", "100", "it"]


def report(**given: Any) -> Any:
    return SimpleNamespace(**{"at_work": None, "last": None, "lag": None, **given})


@pytest.mark.parametrize(
    ("given", "state"),
    [
        (None, "Spark is starting …"),
        ({}, "Spark is starting …"),
        ({"last": SimpleNamespace(batch_id=3)}, "batch 3, lag 0"),
        ({"last": SimpleNamespace(batch_id=3), "lag": 1234}, "batch 3, lag 1,234"),
    ],
)
def test_the_state_of_the_pipeline(given: dict[str, Any] | None, state: str) -> None:
    console = Console(file=io.StringIO(), width=200, force_terminal=False)
    with screen.Screen(console) as shown:
        shown.update(1000, Results(900, {}), None if given is None else report(**given))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == f"1,000 page views sent, 900 counted so far; {state}\n"
