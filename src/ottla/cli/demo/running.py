"""What `ottla demo` does: it starts its parts, shows what they do, and ends them."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.markup import escape

from ottla.cli.demo.broker import OwnBroker
from ottla.cli.demo.visitors import TOPIC, Visitors, count_page_views
from ottla.cli.failures import errors_told
from ottla.spark.sessions import SparkUnavailableError, require_spark

PIPELINE = Path(__file__).with_name("pipeline.yaml")
RESULTS_TOPIC = "demo.views-per-page"
_TICK_S = 0.25
_FIRST_RESULT_TIMEOUT_S = 120
_CATCH_UP_TIMEOUT_S = 30


def run(port: int, data: str, rate: int, duration: float | None) -> None:
    """Until Ctrl-C, or so many seconds."""
    place = Path(data).expanduser().absolute()
    console = Console(highlight=False)
    with errors_told(), _end_by_ctrl_c() as end, OwnBroker(port, place / "broker") as broker:
        _introduce(console, broker.bootstrap_servers)
        until = None if duration is None else time.monotonic() + duration
        try:
            require_spark()
        except SparkUnavailableError as e:
            console.print(f"Only the broker runs: {escape(str(e))}.")
            while not (end.is_set() or _is_past(until)):
                broker.wait(_TICK_S)
            return
        _count_page_views(console, broker, place / "pipeline", rate, until, end)


def _introduce(console: Console, bootstrap_servers: str) -> None:
    console.print(f"A broker is listening on {bootstrap_servers}. In another terminal, try:")
    server = f"--bootstrap-server {bootstrap_servers}"
    console.print(f"  ottla consume {server} --topic {RESULTS_TOPIC} --from-beginning", soft_wrap=True)
    console.print(f"  echo hello | ottla produce {server} --topic greetings", soft_wrap=True)
    console.print(f"The pipeline is {PIPELINE}; Ctrl-C stops everything.\n", soft_wrap=True)


@contextmanager
def _end_by_ctrl_c() -> Iterator[threading.Event]:
    """Ctrl-C, whenever it comes, is the ordinary end; a second one does not wait for what still has to be done."""
    end = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if end.is_set():
            raise KeyboardInterrupt
        end.set()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield end
    finally:
        signal.signal(signal.SIGINT, before)


def _count_page_views(
    console: Console, broker: OwnBroker, place: Path, rate: int, until: float | None, end: threading.Event
) -> None:
    # Only now: Spark's modules take a while to load, and a broker that runs alone has no need for them.
    from ottla.cli.demo.counting import Counting
    from ottla.cli.demo.screen import Screen, read_results

    place.mkdir(parents=True, exist_ok=True)
    database = place / "demo.db"
    counting = Counting(PIPELINE, broker.bootstrap_servers, place)
    with Visitors(broker.bootstrap_servers, rate) as visitors, counting:
        with Screen(console) as screen:

            def show() -> int:
                results = read_results(database, datetime.now(UTC))
                while counting.progress.restarts:
                    screen.tell(counting.progress.restarts.popleft())
                screen.update(visitors.sent, results, counting.progress.report)
                return results.counted

            while not (end.is_set() or _is_over(until, show())):
                broker.wait(_TICK_S)
                counting.raise_failure()
            if end.is_set():
                console.print("Stopping …")
            visitors.stop()
            sent = count_page_views(broker.bootstrap_servers)
            give_up_at = time.monotonic() + _CATCH_UP_TIMEOUT_S
            while show() < sent and time.monotonic() < give_up_at and counting.is_running:
                broker.wait(_TICK_S)
        counting.stop()
        counting.raise_failure()
        _conclude(console, sent, read_results(database, datetime.now(UTC)).counted, database)


def _is_past(until: float | None) -> bool:
    return until is not None and time.monotonic() > until


def _is_over(until: float | None, counted: int) -> bool:
    return until is not None and _is_past(until if counted else until + _FIRST_RESULT_TIMEOUT_S)


def _conclude(console: Console, sent: int, counted: int, database: Path) -> None:
    """Exactly once means that these two are equal."""
    verdict = "none lost, none counted twice" if sent == counted else "the rest will be counted at the next start"
    console.print(f"{TOPIC} holds {sent:,} page views, {database} counts {counted:,}: {verdict}.", soft_wrap=True)
