"""`ottla groups`: consumer groups, where they are, and where they are to go on; Kafka's kafka-consumer-groups."""

from __future__ import annotations

import sys
from argparse import Namespace

from ottla.cli.failures import run_client
from ottla.cli.parsing import CommandParser, number

KAFKA_VERBS = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
VERBS = (*KAFKA_VERBS, "remove-members")
STRATEGIES = (
    "to_offset",
    "to_current",
    "to_datetime",
    "from_file",
    "by_duration",
    "to_earliest",
    "to_latest",
    "shift_by",
)
_NO_EXECUTE = (
    "WARN: No action will be performed as the --execute option is missing.In a future major release, the default "
    "behavior of this command will be to prompt the user before executing the reset rather than doing a dry run. You "
    "should add the --dry-run option explicitly if you are scripting this command and want to keep the current default "
    "behavior without prompting."
)
_STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning", "Reconciling")
_TYPES = ("Consumer", "Classic")
_KAFKA_ACTIONS = "[reset-offsets], [describe], [delete], [list]"
_EXAMPLES = (
    "ottla groups list --state stable",
    "ottla groups describe billing",
    "ottla groups describe --all-groups --members --verbose",
    "ottla groups reset-offsets billing --topic orders --to-earliest",
    "ottla groups reset-offsets billing --all-topics --by-duration 2h --execute",
    "ottla groups reset-offsets billing --all-topics --to-current --export > b.csv",
    "ottla groups remove-members billing --instance-id worker-3",
)


def parser(kafka: str = "") -> CommandParser:
    summary = (
        "List, describe and delete consumer groups, and set where they go on reading. A reset only shows what it would "
        "do until --execute is given, and is refused while the group has members."
    )
    made = CommandParser(
        "groups",
        summary,
        words="[VERB] [GROUP]...",
        verbs=KAFKA_VERBS if kafka else VERBS,
        examples=_EXAMPLES,
        kafka=kafka,
        prints_rows=True,
    )
    helps = {
        "list": "list groups",
        "describe": "show offsets and lag, members or state",
        "delete": "delete groups without members",
        "reset-offsets": "set where a group goes on reading",
        "delete-offsets": "forget where a group was in a topic",
        "remove-members": "take members out of a group",
    }
    made.add_verb_flags({verb: helps[verb] for verb in made.verbs})
    made.add_argument("--group", action="append", default=[], metavar="NAME", help="a group; repeatable")
    made.add_flag("--all-groups", "every group there is")
    made.add_argument("--topic", action="append", default=[], metavar="NAME[:0,1]", help="a topic; repeatable")
    made.add_flag("--all-topics", "all topics the group has offsets of")
    made.add_flag("--offsets", "describe offsets and lag; the default")
    made.add_flag("--members", "describe members")
    made.add_argument("--state", nargs="?", const="", metavar="STATES", help="describe the state; list with states")
    made.add_argument("--type", nargs="?", const="", metavar="TYPES", help="list with types: classic, consumer")
    made.add_flag("--verbose", "with --members, show what each has")
    _add_strategies(made)
    made.add_flag("--dry-run", "only show what a reset would do; the default")
    made.add_flag("--execute", "do it")
    made.add_flag("--export", "print the offsets as lines that --from-file reads")
    made.add_argument("--instance-id", action="append", default=[], metavar="ID", help="a static member to remove")
    made.add_argument("--member-id", action="append", default=[], metavar="ID", help="a member to remove")
    made.add_argument("--timeout", type=number, default=5000, metavar="MS", help="how long a call may take; 5000")
    return made


def _add_strategies(made: CommandParser) -> None:
    made.add_flag("--to-earliest", "reset to the first record")
    made.add_flag("--to-latest", "reset to the end")
    made.add_flag("--to-current", "reset to where the group is")
    made.add_argument("--to-offset", type=number, metavar="N", help="reset to an offset")
    made.add_argument("--shift-by", type=number, metavar="N", help="reset by so many records, back if negative")
    made.add_argument(
        "--to-datetime", metavar="TIME", help="reset to a time: 2026-03-01T12:00:00.000, UTC or with zone"
    )
    made.add_argument("--by-duration", metavar="PnDTnHnMnS", help="reset to a time ago: PT2H, P1D, 30m")
    made.add_argument("--from-file", metavar="CSV", help="reset to what --export has printed")


def main(arguments: list[str], kafka: str = "") -> int:
    made = parser(kafka)
    options = made.read(arguments)
    options.group = [*options.group, *options.words]
    _check(made, options)
    from ottla.cli.groups.work import run

    run_client(run(options))
    return 0


def _check(made: CommandParser, options: Namespace) -> None:
    verb = options.verb
    if verb == "list":
        if options.group:
            made.error('Option "[group]" can\'t be used with option "[list]"')
        views = [name for name in ("members", "offsets", "verbose") if getattr(options, name)]
        if views:
            made.error(f"Option(s) [{', '.join(views)}] are unavailable given other options on the command line")
        options.states = _names(made, "state", options.state, _STATES)
        options.types = _names(made, "types", options.type, _TYPES)
        return
    if "" in options.group:
        made.error("a group's name is empty")
    if options.group and options.all_groups:
        made.error('Option "[group]" can\'t be used with option "[all-groups]"')
    if not options.group and not options.all_groups:
        # Kafka's tool names the wrong list here.
        listed = _KAFKA_ACTIONS if made.kafka and verb == "describe" else "[all-groups], [group]"
        made.error(f"Option [{verb}] takes one of these options: {listed}")
    if verb == "describe":
        if sum((options.offsets, options.members, options.state is not None)) > 1:
            made.error("Option [describe] takes at most one of these options: [members], [offsets], [state]")
        if options.topic:
            made.error('Option "[topic]" can\'t be used with option "[describe]"')
    elif verb == "delete" and options.topic:
        made.error("The consumer does not support topic-specific offset deletion from a consumer group.")
    elif verb == "delete-offsets" and not options.topic:
        made.error("Option [delete-offsets] takes the following options: [topic]")
    elif verb == "reset-offsets":
        _check_reset(made, options)


def _check_reset(made: CommandParser, options: Namespace) -> None:
    # 0 is a strategy's value, too.
    given = [name for name in STRATEGIES if getattr(options, name) is not None and getattr(options, name) is not False]
    if made.kafka and not options.execute and not options.dry_run:
        print(_NO_EXECUTE, file=sys.stderr)
    if options.execute and options.dry_run:
        made.error("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not given:
        listed = ", ".join(f"[{name.replace('_', '-')}]" for name in STRATEGIES)
        made.error(f"Option '[reset-offsets]' requires one of the following scenarios: [{listed}]")
    if len(given) > 1:
        first, second = (name.replace("_", "-") for name in given[:2])
        made.error(f'Option "[{first}]" can\'t be used with option "[{second}]"')
    options.strategy = given[0]
    if given[0] != "from_file" and not options.topic and not options.all_topics:
        made.error("One of the reset scopes should be defined: --all-topics, --topic.")


def _names(made: CommandParser, what: str, text: str | None, known: tuple[str, ...]) -> list[str]:
    wanted = [name.strip().lower() for name in (text or "").split(",") if name.strip()]
    by_lower = {name.lower(): name for name in known}
    if any(name not in by_lower for name in wanted):
        kind = "states" if what == "state" else what
        made.error(f"Invalid {what} list '{text}'. Valid {kind} are: {', '.join(known)}")
    return [by_lower[name] for name in wanted]
