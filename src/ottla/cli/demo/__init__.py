"""`ottla demo`: a broker, invented visitors of a web site, and a Spark pipeline that counts what they look at."""

from __future__ import annotations

from ottla.cli.parsing import CommandParser, number

_RATE_MAX = 100_000
_EXAMPLES = ("ottla demo", "ottla demo --rate 1000 --duration 60 --data /tmp/demo")


def parser() -> CommandParser:
    summary = "Run a broker, invented visitors of a web site, and a Spark pipeline that counts what they look at."
    made = CommandParser("demo", summary, examples=_EXAMPLES, connects=False)
    made.add_argument(
        "--port", type=number, default=9092, metavar="PORT", help="where the broker listens, on 127.0.0.1; 9092"
    )
    made.add_argument(
        "--data", default="data", metavar="DIR", help="where the broker and the pipeline keep their data; data"
    )
    made.add_argument("--rate", type=number, default=200, metavar="N", help="page views a second; 200")
    made.add_argument(
        "--duration", type=float, metavar="S", help="seconds to run, at least until there are results; until Ctrl-C"
    )
    return made


def main(arguments: list[str]) -> int:
    made = parser()
    options = made.read(arguments)
    if not 1 <= options.rate <= _RATE_MAX:
        made.error(f"--rate must be from 1 to {_RATE_MAX}")
    if not 0 <= options.port < 1 << 16:
        made.error(f"--port {options.port} is no port")
    from ottla.cli.demo.running import run

    run(options.port, options.data, options.rate, options.duration)
    return 0
