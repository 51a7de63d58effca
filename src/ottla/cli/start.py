"""`ottla start`: reads the configuration and runs a broker with it until it is told to stop."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

from ottla.base.errors import InvalidConfigError, StartError
from ottla.broker.config.broker_config import BrokerConfig

USAGE = "Usage: ottla start [OPTIONS] [server.properties]"
HELP = f"""\
{USAGE}

  Run a broker. Without a file it listens on port 9092 and needs nothing else.
  With --brokers, run a cluster of several on this machine, a process each.
  With zookeeper.connect, brokers find each other through a ZooKeeper.

  Settings can also come from the environment: log.dirs from OTTLA_LOG_DIRS.
  The command line wins, then the environment, then the file. All settings are
  in docs/configuration.md.

Arguments:
  server.properties  a file with settings

Options:
  --override <name=value>  a setting, which beats the file's; repeatable
  --log-level <level>      how much the broker writes to its log: DEBUG, INFO,
                           WARN or ERROR, or logger=level; repeatable
  --brokers <n>            run n brokers, with ids from 1 on
  --port <port>            the first broker's port with --brokers; the others
                           have the following ones. 9092 if not given
  --data <directory>       where --brokers keeps data, logs and process ids, in
                           broker-1 and so on. ./data/cluster if not given
  --no-restart             with --brokers, leave a broker that dies dead
  -h, --help               Show this message and exit.

Examples:
  ottla start --override log.dirs=/var/lib/ottla
  ottla start --brokers 3 --data ~/cluster
  ottla start --override zookeeper.connect=localhost:2181/kafka
"""


def main(arguments: list[str]) -> int:
    arguments_parser = parser()
    options = arguments_parser.parse_args(arguments)
    if options.brokers is not None:
        return _run_cluster(options)
    for name in ("port", "data", "no_restart"):
        if getattr(options, name):
            arguments_parser.error(
                f"--{name.replace('_', '-')} is for clusters: say how many --brokers, or use --override"
            )
    try:
        levels = [f"ottla.log.level={','.join(options.log_level)}"] if options.log_level else []
        config = BrokerConfig.load(options.properties, options.override + levels, os.environ)
    except InvalidConfigError as e:
        return _refuse(e.message)
    from ottla.broker.app import run_broker  # after the configuration: a typing error is answered at once

    try:
        return run_broker(config)
    except StartError as e:
        return _refuse(str(e))


def _run_cluster(options: argparse.Namespace) -> int:
    from ottla.cli.local_cluster import ClusterOptions, run_cluster

    levels = [f"ottla.log.level={','.join(options.log_level)}"] if options.log_level else []
    overrides = [*options.override, *levels]
    try:
        # Once for all brokers: what is wrong for each is said once.
        config = BrokerConfig.load(options.properties, overrides, os.environ)
    except InvalidConfigError as e:
        return _refuse(e.message)
    data = (options.data or Path("data/cluster")).expanduser().absolute()
    return run_cluster(
        ClusterOptions(
            options.brokers,
            options.port or 9092,
            data,
            restarts=not options.no_restart,
            overrides=overrides,
            properties=options.properties,
            serves_store=config.optional_text("zookeeper.connect") is None,
        )
    )


def _refuse(sentence: str) -> int:
    print(sentence, file=sys.stderr)
    return 1


class _Parser(argparse.ArgumentParser):
    """argparse, not typer: this is the one command whose start-up time is the broker's. Its help looks the same."""

    def format_help(self) -> str:
        return HELP

    def error(self, message: str) -> NoReturn:
        print(f"{USAGE}\nTry 'ottla start -h' for help.\n\nError: {message}", file=sys.stderr)
        raise SystemExit(2)


def parser() -> argparse.ArgumentParser:
    arguments = _Parser(prog="ottla start")
    arguments.add_argument("properties", nargs="?", type=Path, metavar="server.properties")
    arguments.add_argument("--override", action="append", default=[], metavar="name=value")
    arguments.add_argument("--log-level", action="append", default=[], metavar="level")
    arguments.add_argument("--brokers", type=_at_least_one, metavar="n")
    arguments.add_argument("--port", type=int, metavar="port")
    arguments.add_argument("--data", type=Path, metavar="directory")
    arguments.add_argument("--no-restart", action="store_true")
    return arguments


def _at_least_one(text: str) -> int:
    count = int(text) if text.isdecimal() else 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of brokers")
    return count
