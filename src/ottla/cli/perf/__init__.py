"""`ottla perf`: how fast records are written, read, and delivered from end to end."""

from __future__ import annotations

from argparse import SUPPRESS, Namespace

from ottla.cli.failures import parse_pairs, run_client
from ottla.cli.parsing import CommandParser, number

PRODUCER_SCRIPT = "kafka-producer-perf-test.sh"
CONSUMER_SCRIPT = "kafka-consumer-perf-test.sh"
_VERBS = ("produce", "consume", "latency")
_EXAMPLES = (
    "ottla perf produce load --num-records 100000 --record-size 100",
    "ottla perf produce load --throughput 1000 --producer-props acks=1 linger.ms=5",
    "ottla perf consume load --messages 100000",
    "ottla perf latency load --num-records 1000",
)


def parser(kafka: str = "") -> CommandParser:
    summary = (
        "Measure a topic: records written per second with the latency of their acknowledgement, records read per "
        "second, or the time from a write until the record is read."
    )
    verbs = () if kafka else _VERBS
    made = CommandParser(
        "perf",
        summary,
        words="VERB [TOPIC]",
        verbs=verbs,
        examples=_EXAMPLES,
        kafka=kafka,
        connects=kafka != PRODUCER_SCRIPT,
        prints_rows=True,
    )
    if kafka == PRODUCER_SCRIPT:
        made.add_argument("--bootstrap-server", default="", help=SUPPRESS)
        made.add_argument("--command-config", "--producer.config", help=SUPPRESS)
    made.add_argument("--topic", metavar="NAME", help="the same as TOPIC")
    made.add_argument("--num-records", type=number, metavar="N", help="how many; 100000")
    made.add_argument("--messages", dest="num_records", type=number, default=SUPPRESS, help=SUPPRESS)
    made.add_argument("--record-size", type=number, metavar="BYTES", help="of a value; 100")
    made.add_argument("--payload-file", metavar="FILE", help="write its lines, at random")
    made.add_argument("--payload-delimiter", default="\\n", metavar="TEXT", help="between its records; a line end")
    made.add_flag("--payload-monotonic", "write 0, 1, 2, …")
    made.add_argument("--throughput", type=float, default=-1.0, metavar="N", help="records per second; -1 is no limit")
    made.add_argument("--producer-props", nargs="+", action="extend", default=[], metavar="K=V", help="settings")
    made.add_argument("--transactional-id", metavar="ID", help="write in transactions")
    made.add_argument("--transaction-duration-ms", type=number, default=3000, metavar="MS", help="of each; 3000")
    made.add_argument("--group", metavar="NAME", help="read as a member of this group")
    made.add_argument("--timeout", type=number, default=10_000, metavar="MS", help="end if nothing comes; 10000")
    made.add_flag("--from-latest", "read only what comes from now on")
    made.add_flag("--hide-header", "leave the line with names out")
    made.add_argument("--fetch-size", type=number, default=1 << 20, metavar="BYTES", help="of a fetch; 1048576")
    made.add_argument("--reporting-interval", type=number, default=5000, metavar="MS", help="between lines; 5000")
    made.add_flag("--show-detailed-stats", "a line for each interval, in place of the sum")
    made.add_argument("--consumer.config", dest="command_config", default=SUPPRESS, help=SUPPRESS)
    for ignored in ("--print-metrics",):
        made.add_argument(ignored, action="store_true", help=SUPPRESS)
    for ignored in ("--socket-buffer-size", "--threads", "--num-fetch-threads", "--date-format"):
        made.add_argument(ignored, help=SUPPRESS)
    return made


def main(arguments: list[str], kafka: str = "") -> int:
    made = parser(kafka)
    options = made.read(arguments)
    if kafka:
        options.verb = "produce" if kafka == PRODUCER_SCRIPT else "consume"
    if options.topic is None and options.words:
        options.topic = options.words.pop(0)
    if options.topic is None:
        made.error("which topic is not said" if not kafka else 'Missing required argument "[topic]"')
    if kafka == CONSUMER_SCRIPT and options.num_records is None:
        made.error('Missing required argument "[messages]"')
    _check_payload(made, options)
    from ottla.cli.perf import measuring

    run_client(measuring.WORK[options.verb](options))
    return 0


def _check_payload(made: CommandParser, options: Namespace) -> None:
    given = [options.record_size is not None, options.payload_file is not None, options.payload_monotonic]
    if sum(given) > 1:
        made.error("argument --payload-file: not allowed with argument --record-size")
    if made.kafka == PRODUCER_SCRIPT:
        if not any(given):
            made.error("one of the arguments --record-size --payload-file --payload-monotonic is required")
        if not options.producer_props and not options.command_config:
            made.error("Either --producer-props or --producer.config must be specified.")
    for name, least in (("num_records", 1), ("record_size", 0), ("timeout", 0), ("reporting_interval", 1)):
        value = getattr(options, name)
        if value is not None and value < least:
            made.error(f"--{name.replace('_', '-')} must be at least {least}")
    options.num_records = options.num_records or 100_000
    if options.record_size is None:
        options.record_size = 100
    options.props = parse_pairs("--producer-props", options.producer_props)
    options.bootstrap_server = options.props.pop("bootstrap.servers", None) or options.bootstrap_server
