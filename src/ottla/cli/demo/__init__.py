"""`ottla demo`: a broker, invented visitors of a web site, and a Spark pipeline that counts what they look at."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ottla.cli.demo.broker import OwnBroker
from ottla.cli.demo.visitors import TOPIC, Visitors, count_page_views
from ottla.cli.terminal import errors_told, run_command
from ottla.spark.session import SparkUnavailableError, require_spark

PIPELINE = Path(__file__).with_name("pipeline.yaml")
RESULTS_TOPIC = "demo.views-per-page"
_TICK_S = 0.25
_FIRST_RESULT_TIMEOUT_S = 120
_CATCH_UP_TIMEOUT_S = 30


def main(arguments: list[str]) -> int:
    return run_command("demo", demo, arguments)


def demo(
    port: Annotated[int, typer.Option(help="Where the broker listens, on 127.0.0.1.")] = 9092,
    data: Annotated[Path, typer.Option(help="Where the broker and the pipeline keep their data.")] = Path("data"),
    rate: Annotated[int, typer.Option(help="Page views a second.", min=1, max=100_000)] = 200,
    duration: Annotated[
        float | None, typer.Option(help="Seconds to run, at least until there are results; otherwise until Ctrl-C.")
    ] = None,
) -> None:
    """Run a broker, invented visitors of a web site, and a Spark pipeline that counts what they look at."""
    console = Console(highlight=False)
    with errors_told(), OwnBroker(port, (data / "broker").absolute()) as broker:
        _introduce(console, broker.bootstrap_servers)
        until = None if duration is None else time.monotonic() + duration
        try:
            require_spark()
        except SparkUnavailableError as e:
            console.print(f"Only the broker runs: {e}.")
            _wait(broker, until)
            return
        _count_page_views(console, broker, (data / "pipeline").absolute(), rate, until)


def _introduce(console: Console, bootstrap_servers: str) -> None:
    console.print(f"A broker is listening on {bootstrap_servers}. In another terminal, try:")
    server = f"--bootstrap-server {bootstrap_servers}"
    console.print(f"  ottla consume {server} --topic {RESULTS_TOPIC} --from-beginning", soft_wrap=True)
    console.print(f"  echo hello | ottla produce {server} --topic greetings", soft_wrap=True)
    console.print(f"The pipeline is {PIPELINE}; Ctrl-C stops everything.\n", soft_wrap=True)


def _wait(broker: OwnBroker, until: float | None) -> None:
    try:
        while until is None or time.monotonic() < until:
            broker.wait(_TICK_S)
    except KeyboardInterrupt:
        return


def _count_page_views(console: Console, broker: OwnBroker, place: Path, rate: int, until: float | None) -> None:
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
                screen.update(visitors.sent, results, counting.progress)
                return results.counted

            try:
                while not _is_over(until, show()):
                    broker.wait(_TICK_S)
                    counting.raise_failure()
            except KeyboardInterrupt:
                console.print("Stopping …")
            visitors.stop()
            sent = count_page_views(broker.bootstrap_servers)
            give_up_at = time.monotonic() + _CATCH_UP_TIMEOUT_S
            while show() < sent and time.monotonic() < give_up_at and counting.is_running:
                broker.wait(_TICK_S)
        counting.stop()
        counting.raise_failure()
        _conclude(console, sent, read_results(database, datetime.now(UTC)).counted, database)


def _is_over(until: float | None, counted: int) -> bool:
    now = time.monotonic()
    return until is not None and now > until and (counted > 0 or now > until + _FIRST_RESULT_TIMEOUT_S)


def _conclude(console: Console, sent: int, counted: int, database: Path) -> None:
    """Exactly once means that these two are equal."""
    verdict = "none lost, none counted twice" if sent == counted else "the rest will be counted at the next start"
    console.print(f"{TOPIC} holds {sent:,} page views, {database} counts {counted:,}: {verdict}.", soft_wrap=True)
