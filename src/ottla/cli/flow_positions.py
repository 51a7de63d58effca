"""`ottla pipeline position` and `reset`: where a flow is, and where it shall go on. Spark is not started for them."""

from __future__ import annotations

import json as json_text
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.columns import print_columns
from ottla.cli.failures import UsageError, errors_told
from ottla.cli.pipeline_file import FILE, FLOW, JSON, OUTPUT, SERVERS, SET, Output, load_pipeline
from ottla.cli.times import parse_time_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.base.types import TopicPartition
    from ottla.spark.offset_places import Place
    from ottla.spark.pipeline.moves.reset import Move

DRY_RUN = Annotated[bool, typer.Option("--dry-run", help="show what would be done, and do nothing")]


def position(
    file: FILE,
    flow: FLOW,
    to_group: Annotated[str | None, typer.Option(help="a consumer group that gets the flow's position")] = None,
    dry_run: DRY_RUN = False,
    bootstrap_server: SERVERS = None,
    set_: SET = None,
    output: OUTPUT = Output.TABLE,
    json: JSON = False,
) -> None:
    """Show how far a flow is, by its checkpoint, and with --to-group let a consumer group go on there."""
    with errors_told():
        model = load_pipeline(file, bootstrap_server, set_).model()
        from ottla.spark.pipeline.moves.positions import find_flow
        from ottla.spark.pipeline.moves.showing import show_position

        shown = show_position(model, find_flow(model, flow))
        if to_group is not None and not dry_run:
            shown.write_group(to_group)
        if json or output is Output.JSON:
            told = {
                "flow": flow,
                "batch": shown.batch,
                "position": _nested(shown.position),
                "ends": _nested(shown.ends),
            }
            print(json_text.dumps(told if to_group is None else {**told, "group": to_group, "dry_run": dry_run}))
            return
        rows = [
            (one.topic, str(one.partition), str(at), str(shown.ends[one]), str(max(0, shown.ends[one] - at)))
            if one in shown.ends
            else (one.topic, str(one.partition), str(at), "gone", "-")
            for one, at in sorted(shown.position.items())
        ]
        print_columns(("TOPIC", "PARTITION", "POSITION", "END", "LAG"), rows, right=_NUMBERS)
        if to_group is not None:
            print(f"group {to_group} would go on there" if dry_run else f"group {to_group} goes on there")


def reset(
    file: FILE,
    flow: FLOW,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="to the first record there is")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="to the end: only what comes from now on")] = False,
    to_time: Annotated[str | None, typer.Option(help="to the first record of this time or later")] = None,
    to_group: Annotated[str | None, typer.Option(help="to where a consumer group is")] = None,
    to_offsets: Annotated[str | None, typer.Option(help='to offsets as JSON: {"topic": {"0": 23}}')] = None,
    dry_run: DRY_RUN = False,
    bootstrap_server: SERVERS = None,
    set_: SET = None,
    output: OUTPUT = Output.TABLE,
    json: JSON = False,
) -> None:
    """Move a flow that is not running: the next run goes on elsewhere. Its checkpoint is kept aside."""
    with errors_told():
        model = load_pipeline(file, bootstrap_server, set_).model()
        from ottla.spark.pipeline.moves.reset import reset_flow

        place = _place(to_earliest, to_latest, to_time, to_group, to_offsets)
        move = reset_flow(model, flow, place, dry_run=dry_run)
        if json or output is Output.JSON:
            print(json_text.dumps(_as_json(move)))
        else:
            _show(move)


_NUMBERS = ("PARTITION", "POSITION", "NEW-POSITION", "END", "LAG", "CHANGE")


def _place(
    to_earliest: bool, to_latest: bool, to_time: str | None, to_group: str | None, to_offsets: str | None
) -> Place:
    from ottla.spark.offset_places import EARLIEST, LATEST, AtEdge, AtGroup, AtTime, parse_offsets

    given = [to_earliest, to_latest, to_time is not None, to_group is not None, to_offsets is not None]
    if sum(given) != 1:
        raise UsageError("say where to, once: --to-earliest, --to-latest, --to-time, --to-group or --to-offsets")
    if to_time is not None:
        return AtTime(parse_time_ms("--to-time", to_time))
    if to_group is not None:
        return AtGroup(to_group)
    if to_offsets is not None:
        return parse_offsets("--to-offsets", to_offsets)
    return AtEdge(EARLIEST if to_earliest else LATEST)


def _show(move: Move) -> None:
    rows = []
    for one, after in sorted(move.after.items()):
        before = move.before.get(one)
        shown = ("-", "") if before is None else (str(before), f"{after - before:+d}" if after != before else "0")
        rows.append((one.topic, str(one.partition), shown[0], str(after), str(move.ends[one]), shown[1]))
    print_columns(("TOPIC", "PARTITION", "POSITION", "NEW-POSITION", "END", "CHANGE"), rows, right=_NUMBERS)
    for note in move.notes:
        print(note)
    if move.aside is None:
        print(f"flow {move.flow} would go on at its new position; nothing was changed")
    else:
        print(f"flow {move.flow} goes on at its new position; its old checkpoint is {move.aside}")


def _as_json(move: Move) -> dict[str, Any]:
    return {
        "flow": move.flow,
        "dry_run": move.aside is None,
        "before": _nested(move.before),
        "after": _nested(move.after),
        "ends": _nested(move.ends),
        "read_again": move.read_again,
        "passed_over": move.passed_over,
        "notes": list(move.notes),
        "old_checkpoint": None if move.aside is None else str(move.aside),
    }


def _nested(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    from ottla.spark.offsets import to_json

    return to_json(offsets)
