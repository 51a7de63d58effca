"""`ottla pipeline`: checks and runs pipelines. Spark is loaded when a pipeline needs it, and not for `--help`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli import mirrored_groups
from ottla.cli.failures import INTERRUPTED, errors_told
from ottla.cli.flow_positions import position, reset
from ottla.cli.pipeline_file import FILE, SERVERS, SET, load_pipeline
from ottla.cli.redrive import redrive
from ottla.cli.terminal import examples, new_app, run_app

if TYPE_CHECKING:
    from ottla.spark.pipeline.runner import Runner

_MASTER = Annotated[str | None, typer.Option(help="where Spark runs: local[4], spark://host:7077, …")]
_LOG = Annotated[Path | None, typer.Option(help="a file for what Spark and its tasks log; nothing is kept without")]


class Output(StrEnum):
    AUTO = "auto"
    TABLE = "table"
    LINES = "lines"
    JSON = "json"


_EXAMPLES = {
    "run": ("run orders.yaml", "run orders.yaml --once --output json"),
    "check": ("check orders.yaml", "check orders.yaml --set sinks.totals.topic=test"),
    "position": ("position orders.yaml totals", "position orders.yaml totals --to-group billing"),
    "reset": ("reset orders.yaml totals --to-earliest --dry-run", "reset orders.yaml totals --to-time 2026-03-01"),
    "redrive": ("redrive orders.yaml totals --dry-run", "redrive orders.yaml totals --error amount --limit 50"),
    "groups": ("groups mirror.yaml", "groups mirror.yaml --group billing --execute"),
}
VERBS = {
    "run": "run a pipeline",
    "check": "look for what would keep it from running",
    "position": "show how far a flow is",
    "reset": "move a flow to other offsets",
    "redrive": "send dead letters back",
    "groups": "move groups to the target of a mirror",
}


def main(arguments: list[str]) -> int:
    return run_app(_app(), "pipeline", arguments)


def _app() -> typer.Typer:
    app = new_app()
    for function in (run, check, position, reset, redrive, groups):
        name = function.__name__
        app.command(name, short_help=VERBS[name], epilog=examples(_EXAMPLES[name]))(function)
    app.callback(no_args_is_help=True, epilog=examples([shown[0] for shown in _EXAMPLES.values()]))(_pipeline)
    return app


def help_of(verb: str) -> str:
    """What is shown with --help; nothing of a verb that there is not."""
    from typer.main import get_group

    group = get_group(_app())
    context = group.make_context("pipeline", [verb], resilient_parsing=True)
    command = group.get_command(context, verb)
    return "" if command is None else command.get_help(command.make_context(verb, [], resilient_parsing=True))


def _pipeline() -> None:
    """Run data pipelines on Spark."""


def run(
    file: FILE,
    once: Annotated[bool, typer.Option("--once", help="read what is there, then end")] = False,
    master: _MASTER = None,
    bootstrap_server: SERVERS = None,
    set_: SET = None,
    output: Annotated[
        Output, typer.Option(help="how it is told how things go; auto: a table in a terminal")
    ] = Output.AUTO,
    json: Annotated[bool, typer.Option("--json", help="the same as --output json")] = False,
    log_file: _LOG = None,
    save_classes: Annotated[
        bool, typer.Option("--save-classes", help="keep Java's classes (180 MB), so that later starts are faster")
    ] = False,
) -> None:
    """Run a pipeline until Ctrl-C, or with --once until nothing is left to read."""
    with errors_told():
        pipeline = load_pipeline(file, bootstrap_server, set_)
        from ottla.spark.pipeline.display import choose_display

        model = pipeline.model()
        with (
            choose_display(model.name, model.flows, output="json" if json else output) as display,
            _stopped_by_signals() as (stop_with, was_stopped),
        ):
            pipeline.run(
                once=once,
                master=master,
                log_file=log_file,
                observer=display,
                on_start=stop_with,
                save_classes=save_classes,
            )
        if was_stopped():
            raise SystemExit(INTERRUPTED)


def check(
    file: FILE,
    master: _MASTER = None,
    bootstrap_server: SERVERS = None,
    set_: SET = None,
) -> None:
    """Look for everything that would keep a pipeline from running, and start nothing."""
    with errors_told():
        pipeline = load_pipeline(file, bootstrap_server, set_)
        pipeline.check(master=master)
        model = pipeline.model()
        print(f"{file}: fine, {len(model.flows)} flow{'s' if len(model.flows) != 1 else ''}")


def groups(
    file: FILE,
    group: mirrored_groups.GROUP = None,
    mirror: mirrored_groups.MIRROR = None,
    execute: mirrored_groups.EXECUTE = False,
    rewind: mirrored_groups.REWIND = False,
    set_: SET = None,
) -> None:
    """Show where groups of a mirror's source go on reading on its target, and with --execute move them there."""
    with errors_told():
        pipeline = load_pipeline(file, None, set_)
        if not mirrored_groups.move_groups(pipeline, group, mirror, execute=execute, rewind=rewind):
            raise SystemExit(1)


@contextmanager
def _stopped_by_signals() -> Iterator[tuple[Callable[[Runner], None], Callable[[], bool]]]:
    """Ctrl-C and SIGTERM let flows finish their batch; a second one does not wait for that, nor one before any flow."""
    stopped: list[int] = []
    runners: list[Runner] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if stopped or not runners:
            raise KeyboardInterrupt
        stopped.append(number)
        print("stopping after the current batch; once more to stop at once", file=sys.stderr)
        runners[0].stop()

    def stop_with(runner: Runner) -> None:
        runners.append(runner)
        # Spark has taken Ctrl-C over when it started.
        signal.signal(signal.SIGINT, handle)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop_with, lambda: bool(stopped)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
