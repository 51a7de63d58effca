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

  Settings can also come from the environment: log.dirs from OTTLA_LOG_DIRS.
  The command line wins, then the environment, then the file. All settings are
  in docs/configuration.md.

Arguments:
  server.properties  a file with settings

Options:
  --override <name=value>  a setting, which beats the file's; repeatable
  --log-level <level>      how much the broker writes to its log: DEBUG, INFO,
                           WARN or ERROR, or logger=level; repeatable
  -h, --help               Show this message and exit.
"""


def main(arguments: list[str]) -> int:
    options = parser().parse_args(arguments)
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
    return arguments
