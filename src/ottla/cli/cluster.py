"""`ottla cluster`: looks at a cluster as a whole, and changes which brokers it is made of."""

from __future__ import annotations

from argparse import Namespace

from ottla.cli.failures import run_client
from ottla.cli.parsing import CommandParser, number

VERBS = ("status", "add-broker", "remove-broker", "restart")
_EXAMPLES = (
    "ottla cluster status --watch",
    "ottla cluster add-broker 4 --throttle 20000000",
    "ottla cluster remove-broker 4 --plan leave.json",
    "ottla cluster restart --rolling --data cluster",
)


def parser() -> CommandParser:
    summary = (
        "Look at a cluster as a whole (status: controller, brokers, partitions with something wrong). Give a broker "
        "that has joined its share of partitions (add-broker), or move all that it holds to the others "
        "(remove-broker): the plan is shown before anything moves. Restart the brokers of `ottla start --brokers` one "
        "at a time (restart): each hands over what it leads, and has to be in sync again before the next one stops."
    )
    made = CommandParser("cluster", summary, words="VERB [BROKER]", verbs=VERBS, examples=_EXAMPLES)
    made.add_flag("--watch", "status: show it anew every second, until Ctrl-C")
    made.add_argument(
        *("--output", "-o"),
        choices=("table", "json", "tsv"),
        default="table",
        help="status: table, json or tsv (the brokers alone); table",
    )
    made.add_argument(
        "--throttle", type=number, metavar="BYTES", help="a second, that each broker sends and takes in while moving"
    )
    made.add_argument("--yes", "-y", action="store_true", help="begin to move without asking")
    made.add_argument("--plan", metavar="FILE", help="write the plan there, for `ottla reassign`, and move nothing")
    made.add_argument(
        "--data", default="data/cluster", metavar="DIR", help="restart: what it was started with; data/cluster"
    )
    made.add_flag("--rolling", "restart: one broker at a time, so that no partition is ever away")
    made.add_argument(
        "--timeout-s", type=number, default=300, metavar="S", help="restart: for one broker to be in sync; 300"
    )
    return made


def main(arguments: list[str]) -> int:
    made = parser()
    options = made.read(arguments)
    _check(made, options)
    if options.verb == "status":
        from ottla.cli.cluster_status import show

        run_client(show(options))
    elif options.verb == "restart":
        from ottla.cli.rolling_restart import restart

        run_client(restart(options))
    else:
        from ottla.cli.reassign.scaling import scale

        run_client(scale(options))
    return 0


def _check(made: CommandParser, options: Namespace) -> None:
    needs_broker = options.verb in ("add-broker", "remove-broker")
    if len(options.words) != needs_broker:
        made.error("name one broker by its id" if needs_broker else f"{options.words[0]!r} is not understood")
    if needs_broker and not options.words[0].isdecimal():
        made.error(f"{options.words[0]!r} is no broker id")
    if options.verb == "restart" and not options.rolling:
        made.error("restarting all brokers at once would stop every client; say --rolling")
    for name in ("throttle", "timeout_s"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            made.error(f"--{name.replace('_', '-')} must be at least 1")
