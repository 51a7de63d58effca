"""`ottla start`: reads the configuration and runs a broker with it until it is told to stop."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from ottla.base.errors import InvalidConfigError, StartError
from ottla.broker.config import BrokerConfig


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    try:
        config = BrokerConfig.load(options.properties, options.override, os.environ)
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


def _parser() -> argparse.ArgumentParser:
    # argparse, not typer: this is the one command whose start-up time is that of the broker.
    parser = argparse.ArgumentParser(
        prog="ottla start",
        description="Run a broker. Without a file it listens on port 9092 and needs nothing else.",
        epilog="Settings can also come from the environment: log.dirs from OTTLA_LOG_DIRS. The command line wins, then "
        "the environment, then the file. All settings are in docs/configuration.md.",
    )
    parser.add_argument("properties", nargs="?", type=Path, metavar="server.properties", help="a file with settings")
    parser.add_argument(
        "--override", action="append", default=[], metavar="name=value", help="a setting, which beats the file's"
    )
    return parser
