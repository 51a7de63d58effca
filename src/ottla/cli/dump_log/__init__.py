"""`ottla dump-log`: shows what log, index and snapshot files hold, in the form of Kafka's DumpLogSegments.

Reads the files as they are and writes none, so it can be used on the directory of a running broker.
"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.failures import UsageError, errors_told
from ottla.cli.parsing import CommandParser, number

if TYPE_CHECKING:
    from ottla.cli.dump_log.decoders import Decoders

_EXAMPLES = (
    "ottla dump-log data/orders-0/00000000000000000000.log --print-data-log",
    "ottla dump-log data/orders-0/00000000000000000000.index --index-sanity-check",
    "ottla dump-log data/__consumer_offsets-0/*.log --offsets-decoder",
)
_NO_FILES = (
    "This tool helps to parse a log file and dump its contents to the console, useful for debugging a seemingly "
    "corrupt log segment."
)


class Settings(NamedTuple):
    decoders: Decoders | None
    """Of keys and values; None if they are not shown."""
    deep: bool
    sanity_check: bool
    verify_only: bool
    max_bytes: int | None
    skip_record_metadata: bool


def parser(kafka: str = "") -> CommandParser:
    summary = "Show what log, index and snapshot files hold. They are only read, and may be those of a running broker."
    made = CommandParser("dump-log", summary, words="[FILE]...", examples=_EXAMPLES, kafka=kafka, connects=False)
    made.add_argument("--files", metavar="FILE,FILE", help="the same as FILE, separated by commas")
    made.add_flag("--print-data-log", "show keys and values too")
    made.add_flag("--deep-iteration", "show each record, not just batches")
    made.add_argument(
        "--key-decoder-class", metavar="NAME", help="string, long, integer, json, hex, … or Kafka's class; string"
    )
    made.add_argument("--value-decoder-class", metavar="NAME", help="the same for values")
    made.add_flag("--offsets-decoder", "keys and values are those of __consumer_offsets")
    made.add_flag("--transaction-log-decoder", "keys and values are those of __transaction_state")
    made.add_flag("--index-sanity-check", "only check that an index is in order and inside its log")
    made.add_flag("--verify-index-only", "compare an index with its log without showing it")
    made.add_argument("--max-bytes", type=number, metavar="N", help="stop after so many bytes of a .log file")
    made.add_argument("--max-message-size", type=number, metavar="N", help="has no effect")
    made.add_flag("--skip-record-metadata", "show only the data")
    return made


def main(arguments: list[str], kafka: str = "") -> int:
    made = parser(kafka)
    options = made.read(arguments)
    names = [name.strip() for text in [*options.words, options.files or ""] for name in text.split(",")]
    names = [name for name in names if name]
    if not names:
        made.error(_NO_FILES if kafka else "name a file to show")
    if options.max_bytes is not None and options.max_bytes < 1:
        made.error("--max-bytes must be at least 1")
    if options.offsets_decoder and options.transaction_log_decoder:
        made.error("a file is of __consumer_offsets or of __transaction_state, not of both")
    with errors_told():
        _show(names, options)
    return 0


def _show(names: list[str], options: Namespace) -> None:
    import sys
    from pathlib import Path

    from ottla.cli.dump_log.decoders import chosen_decoders
    from ottla.cli.dump_log.segments import SUFFIXES, dump_lines

    decoders = chosen_decoders(options)
    settings = Settings(
        decoders,
        options.deep_iteration or decoders is not None,
        options.index_sanity_check,
        options.verify_index_only,
        options.max_bytes,
        options.skip_record_metadata,
    )
    for path in map(Path, names):
        print(f"Dumping {path}")
        if path.suffix in SUFFIXES:
            for line in dump_lines(path, settings):
                print(line)
        elif options.kafka:
            sys.stdout.flush()
            print(f"Ignoring unknown file {path}", file=sys.stderr)
        else:
            raise UsageError(f"{path} is none of the files that can be shown ({', '.join(SUFFIXES)})")
