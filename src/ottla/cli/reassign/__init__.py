"""`ottla reassign`: moves partitions between brokers by Kafka's plan files; a verb, or the options of Kafka's tool."""

from __future__ import annotations

from argparse import SUPPRESS, Namespace

from ottla.cli.failures import FAILED, run_client
from ottla.cli.parsing import CommandParser, number

VERBS = ("generate", "execute", "verify", "cancel", "list")
_EXAMPLES = (
    "ottla reassign generate --topic orders --broker-list 1,2,3,4 > plan.json",
    "ottla reassign execute plan.json --throttle 10000000 --wait",
    "ottla reassign --verify --reassignment-json-file plan.json",
    "ottla reassign list -o json",
)
_EXECUTE_ONLY = ("throttle", "replica_alter_log_dirs_throttle", "timeout", "additional", "wait")


def parser(kafka: str = "") -> CommandParser:
    summary = "Move partitions to other brokers, or give them more or fewer replicas."
    made = CommandParser(
        "reassign", summary, words="[VERB] [PLAN]", verbs=VERBS, examples=_EXAMPLES, kafka=kafka, broker_ids=True
    )
    made.add_verb_flags(
        {
            "generate": "print a plan that spreads topics over brokers",
            "execute": "begin to move as the plan says",
            "verify": "say how far it is; remove throttles when it is done",
            "cancel": "end what is under way: replicas stay where they were",
            "list": "list what is being moved",
        }
    )
    made.add_argument("--reassignment-json-file", metavar="FILE", help="the same as PLAN: replicas by partition")
    made.add_argument("--topics-to-move-json-file", metavar="FILE", help="generate: names of topics, as JSON")
    made.add_argument("--topic", action="append", default=[], metavar="NAME", help="generate: a topic; repeatable")
    made.add_argument("--broker-list", metavar="1,2,3", help="generate: the ids of brokers to use; else all")
    made.add_argument(
        "--replication-factor", type=number, metavar="N", help="generate: replicas, if not as many as before"
    )
    made.add_flag("--disable-rack-aware", "generate: racks do not count")
    made.add_argument(
        "--throttle", type=number, metavar="BYTES", help="execute: a second, that each broker sends and takes in"
    )
    made.add_argument(
        "--replica-alter-log-dirs-throttle", type=number, metavar="BYTES", help="execute: a second, between directories"
    )
    made.add_argument(
        "--timeout", type=number, metavar="MS", help="execute: to wait for replicas whose directories are named (10000)"
    )
    made.add_flag("--additional", "execute: besides what is under way, or with another throttle")
    made.add_flag("--preserve-throttles", "verify, cancel: leave throttles as they are")
    made.add_flag("--wait", "execute: show progress until it is done, remove throttles")
    made.add_argument("--bootstrap-controller", help=SUPPRESS)
    if not kafka:
        made.add_argument(
            *("--output", "-o"), choices=("table", "json", "tsv"), default="table", help="list: table, json or tsv"
        )
    return made


def main(arguments: list[str], kafka: str = "") -> int:
    made = parser(kafka)
    options = made.read(arguments)
    options.plan = options.words[0] if options.words else options.reassignment_json_file
    # A flag is how Kafka's tool is asked, and it needs more; a verb has defaults.
    options.as_kafka = bool(kafka) or options.generate
    options.brokers = None if options.broker_list is None else _broker_ids(made, options.broker_list)
    _check(made, options)
    from ottla.cli.reassign.work import run

    run_client(run(options))
    return 0


def _broker_ids(made: CommandParser, text: str) -> list[int]:
    if not all(part.strip().isdecimal() for part in text.split(",")):
        made.error(f"--broker-list {text!r} is not of the form 1,2,3")
    ids = [int(part) for part in text.split(",")]
    doubled = sorted({broker_id for broker_id in ids if ids.count(broker_id) > 1})
    if doubled:
        sentence = f"Broker list contains duplicate entries: {doubled}"
        if made.kafka:
            print(f"Error: {sentence}")  # on standard output, as what is wrong with a plan
            raise SystemExit(FAILED)
        made.error(sentence)
    return ids


def _check(made: CommandParser, options: Namespace) -> None:
    verb = options.verb
    if verb in ("execute", "verify", "cancel") and options.plan is None:
        made.error(
            'Missing required argument "[reassignment-json-file]"'
            if made.kafka
            else f"which plan to {verb} is not said; use --reassignment-json-file"
        )
    if verb != "list" and options.output in ("json", "tsv"):
        made.error("--output is for list only: plans are JSON anyway, and what is said of moves is text")
    given = [name for name in _EXECUTE_ONLY if getattr(options, name) not in (None, False)]
    if verb != "execute" and given:
        name = given[0].replace("_", "-")
        made.error(
            f'Option "[{name}]" can\'t be used with action "[{verb}]"'
            if made.kafka
            else "--throttle, --timeout, --wait and --additional are for execute only"
        )
    if verb == "generate" and options.as_kafka and (options.brokers is None or not _names_topics(options)):
        missing = "broker-list" if options.brokers is None else "topics-to-move-json-file"
        made.error(
            f'Missing required argument "[{missing}]"'
            if made.kafka
            else "--generate needs --topics-to-move-json-file (or --topic) and --broker-list"
        )
    for name in ("replication_factor", "throttle", "replica_alter_log_dirs_throttle"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            made.error(f"--{name.replace('_', '-')} must be at least 1")


def _names_topics(options: Namespace) -> bool:
    return bool(options.topic or options.topics_to_move_json_file)
