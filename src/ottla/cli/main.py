"""The entry of the `ottla` command: finds the subcommand and imports nothing but that one."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import NamedTuple

from ottla import __version__
from ottla.cli.failures import run_program


class Command(NamedTuple):
    module: str
    summary: str


COMMANDS = {
    "demo": Command("ottla.cli.demo", "run a broker and a Spark pipeline on invented events, to look at"),
    "start": Command("ottla.cli.start", "run a broker"),
    "cluster": Command("ottla.cli.cluster", "show the brokers and what they lead, add, remove and restart them"),
    "zookeeper": Command("ottla.cli.zookeeper.command", "run a ZooKeeper on this machine, for a cluster"),
    "topics": Command("ottla.cli.topics", "create, list, describe, alter and delete topics"),
    "reassign": Command("ottla.cli.reassign", "move partitions between brokers, change numbers of replicas"),
    "elect-leaders": Command("ottla.cli.elect_leaders", "let preferred replicas lead again"),
    "produce": Command("ottla.cli.produce", "write lines from standard input to a topic"),
    "consume": Command("ottla.cli.consume", "print what is in a topic"),
    "groups": Command("ottla.cli.groups", "list, describe, reset and delete consumer groups"),
    "configs": Command("ottla.cli.configs", "show and change settings of topics, brokers and groups"),
    "offsets": Command("ottla.cli.offsets", "show where partitions begin and end, or are at a time"),
    "log-dirs": Command("ottla.cli.log_dirs", "show what is in the brokers' log directories"),
    "delete-records": Command("ottla.cli.delete_records", "delete the records before an offset"),
    "transactions": Command("ottla.cli.transactions", "list, describe and abort transactions"),
    "acls": Command("ottla.cli.access.acls", "list, add and remove access rules"),
    "users": Command("ottla.cli.access.users", "list users, set and delete their passwords"),
    "quotas": Command("ottla.cli.access.quotas", "list, set and delete quotas"),
    "perf": Command("ottla.cli.perf", "measure how fast records are written, read and delivered"),
    "aliases": Command("ottla.cli.kafka_names.aliases", "write Kafka's script names, which run these commands"),
    "completion": Command("ottla.cli.completion", "print what a shell needs to complete these commands"),
    "pipeline": Command("ottla.cli.pipeline", "run data pipelines on Spark"),
    "dump-log": Command("ottla.cli.dump_log", "show what log and index files hold"),
    "api-versions": Command("ottla.cli.api_versions", "list the APIs each broker speaks"),
}


def usage() -> str:
    width = max(map(len, COMMANDS))
    lines = "\n".join(f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items())
    return (
        "Usage: ottla COMMAND [OPTIONS]\n\n"
        "An event-streaming platform that speaks Kafka's wire protocol.\n\n"
        f"Commands:\n{lines}\n\n"
        "`ottla COMMAND -h` shows the options of a command; `ottla --version` shows the version.\n"
        "OTTLA_BOOTSTRAP_SERVERS says where brokers are; 127.0.0.1:9092 if it is not set."
    )


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("--help", "-h", "help"):
        print(usage())
        return 0
    name, *rest = arguments
    if name == "--version":
        print(f"ottla {__version__}")
        return 0
    command = COMMANDS.get(name)
    if command is None:
        print(f"ottla has no command {name!r}.{_hint(name)} `ottla --help` lists them.", file=sys.stderr)
        return 2
    try:
        exit_code: int = import_module(command.module).main(rest)
    except SystemExit as e:
        return e.code if isinstance(e.code, int) else 0 if e.code is None else 1
    return exit_code


def _hint(name: str) -> str:
    import difflib  # only a typing error pays for this import

    close = difflib.get_close_matches(name, COMMANDS)
    return f" Did you mean {close[0]!r}?" if close else ""


def run() -> None:
    run_program(lambda: main(sys.argv[1:]))


if __name__ == "__main__":
    run()
