"""`ottla zookeeper start`: ZooKeeper servers on this machine, looked after until Ctrl-C."""

from __future__ import annotations

from ottla.cli.parsing import CommandParser, number

_NODES_MAX = 9
_PORT_MAX = 65_500
_EXAMPLES = ("ottla zookeeper start", "ottla zookeeper start --nodes 3 --data ~/zookeeper")


def parser() -> CommandParser:
    summary = (
        "Start ZooKeeper servers on this machine, out of the jars that come with PySpark, and look after them until "
        "Ctrl-C."
    )
    made = CommandParser("zookeeper", summary, words="start", verbs=("start",), examples=_EXAMPLES, connects=False)
    made.add_argument(
        "--nodes", type=number, default=1, metavar="N", help="how many servers; three survive the loss of one; 1"
    )
    made.add_argument(
        "--port", type=number, default=2181, metavar="PORT", help="the first server's; others have the next ones; 2181"
    )
    made.add_argument(
        "--data", default="data/zookeeper", metavar="DIR", help="where they keep data and logs; data/zookeeper"
    )
    made.add_flag("--no-restart", "leave a server that dies dead")
    return made


def main(arguments: list[str]) -> int:
    made = parser()
    options = made.read(arguments)
    if options.words:
        made.error(f"{options.words[0]!r} is not understood")
    for name, most in (("nodes", _NODES_MAX), ("port", _PORT_MAX)):
        if not 1 <= getattr(options, name) <= most:
            made.error(f"--{name} must be from 1 to {most}")
    from ottla.cli.zookeeper.running import run

    run(options.nodes, options.port, options.data, restarts=not options.no_restart)
    return 0
