"""`ottla pipeline redrive`: dead letters get a second chance. Spark is not started for it."""

from __future__ import annotations

import json as json_text
import re
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.columns import print_columns
from ottla.cli.failures import UsageError, errors_told
from ottla.cli.pipeline_file import FILE, JSON, OUTPUT, SERVERS, SET, Output, load_pipeline
from ottla.cli.times import parse_time_ms

if TYPE_CHECKING:
    from ottla.spark.pipeline.model import Model, Source
    from ottla.spark.pipeline.redrive.redrive import LetterBox, Outcome

_SHOWN_MAX = 30
_COLUMNS = ("LETTERS", "TOPIC", "PARTITION", "OFFSETS", "ERROR")


def redrive(
    file: FILE,
    flow: Annotated[str, typer.Argument(help="a flow whose source has dead letters, or <source>-dead-letters")],
    to_origin: Annotated[
        bool, typer.Option("--to-origin", help="to the topics they came from, even if the source has a redrive_topic")
    ] = False,
    error: Annotated[str | None, typer.Option(help="only letters whose error contains this text")] = None,
    topic: Annotated[str | None, typer.Option(help="only letters from this topic")] = None,
    partition: Annotated[list[int] | None, typer.Option(help="only from this partition; repeatable")] = None,
    offsets: Annotated[str | None, typer.Option(help="only from these offsets: 100-200, 100- or 100")] = None,
    since: Annotated[str | None, typer.Option(help="only records of this time or later")] = None,
    until: Annotated[str | None, typer.Option(help="only records before this time")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="at most so many")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show what would be sent, and send nothing")] = False,
    bootstrap_server: SERVERS = None,
    set_: SET = None,
    output: OUTPUT = Output.TABLE,
    json: JSON = False,
) -> None:
    """Send dead letters back through the flow, each at most once."""
    with errors_told():
        as_json = json or output is Output.JSON
        pipeline = load_pipeline(file, bootstrap_server, set_)
        from ottla.spark.pipeline.redrive.choice import letter_box, source_of
        from ottla.spark.pipeline.redrive.letters import LetterFilter
        from ottla.spark.pipeline.redrive.redrive import Redrive

        model = pipeline.model()
        source = source_of(model, flow)
        box = letter_box(source)
        first_offset, last_offset = _parse_offsets(offsets)
        chosen = LetterFilter(
            error,
            topic,
            tuple(partition or ()),
            first_offset,
            last_offset,
            None if since is None else parse_time_ms("--since", since),
            None if until is None else parse_time_ms("--until", until),
        )
        to_topic = None if to_origin else box.redrive_topic
        work = Redrive(box, chosen, to_topic, limit, on_progress=_ignore if as_json else _tell_progress)
        outcome = work.survey() if dry_run else work.send()
        others = [] if to_topic is not None or not outcome.targets else _others(model, source, box, outcome)
        if as_json:
            print(json_text.dumps(_as_json(box, outcome, to_topic, others, dry_run=dry_run)))
        else:
            _show(box, outcome, to_topic, others, dry_run=dry_run)


def _parse_offsets(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    found = re.fullmatch(r"(\d+)(-(\d*))?", text)
    if found is None:
        raise UsageError(f"--offsets {text!r} are none: write 100-200, 100- for all from 100 on, or 100")
    first = int(found[1])
    if found[2] is None:
        return first, first
    return first, int(found[3]) if found[3] else None


def _others(model: Model, source: Source, box: LetterBox, outcome: Outcome) -> list[str]:
    from ottla.client.core.admin.options import ADMIN_OPTIONS
    from ottla.client.sync import Admin
    from ottla.spark.pipeline.redrive.choice import other_groups

    with Admin(box.known(ADMIN_OPTIONS)) as admin:
        return other_groups(model, source, admin, outcome.targets)


def _ignore(letters: int) -> None:
    pass


def _tell_progress(letters: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{letters} letters sent", end="", file=sys.stderr, flush=True)


def _show(box: LetterBox, outcome: Outcome, to_topic: str | None, others: list[str], *, dry_run: bool) -> None:
    if sys.stderr.isatty() and not dry_run and outcome.summary.letters:
        print(file=sys.stderr)
    count = outcome.summary.letters
    if not count:
        print(f"{box.topic} has no letters of {box.source} that are meant and were not sent back before")
        return
    groups = outcome.summary.groups
    rows = [
        (
            str(group.letters),
            group.origin.topic,
            str(group.origin.partition),
            f"{group.first_offset}-{group.last_offset}",
            group.error,
        )
        for group in groups[:_SHOWN_MAX]
    ]
    print_columns(_COLUMNS, rows, right=("LETTERS", "PARTITION"))
    if len(groups) > _SHOWN_MAX:
        print(f"… and {sum(group.letters for group in groups[_SHOWN_MAX:])} letters with other errors")
    where = f"to {to_topic}" if to_topic is not None else f"to where they were in {', '.join(outcome.targets)}"
    letters = f"{count} letter{'s' if count != 1 else ''} of {box.topic}"
    print(f"{letters} would be sent {where}" if dry_run else f"{letters} sent {where}")
    if others:
        get = "would get" if dry_run else "get"
        print(
            f"other readers of {', '.join(outcome.targets)} {get} them once more: {', '.join(others)}"
            + ("; with a 'redrive_topic' only the source would" if dry_run else "")
        )
    if outcome.compacted and to_topic is None:
        named = ", ".join(outcome.compacted)
        print(f"{named} is compacted: what is sent back is the newest record of its key there")
    if outcome.retimed:
        are = "would be" if dry_run else "are"
        print(f"{outcome.retimed} of them {are} sent under the present time: brokers would delete them for their age")


def _as_json(
    box: LetterBox, outcome: Outcome, to_topic: str | None, others: list[str], *, dry_run: bool
) -> dict[str, Any]:
    return {
        "dead_letter_topic": box.topic,
        "dry_run": dry_run,
        "letters": outcome.summary.letters,
        "to": outcome.targets if to_topic is None else [to_topic],
        "to_origin": to_topic is None,
        "retimed": outcome.retimed,
        "other_readers": others,
        "groups": [
            {
                "topic": group.origin.topic,
                "partition": group.origin.partition,
                "error": group.error,
                "letters": group.letters,
                "first_offset": group.first_offset,
                "last_offset": group.last_offset,
            }
            for group in outcome.summary.groups
        ],
    }
