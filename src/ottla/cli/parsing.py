"""The options of commands that look after a cluster, read by argparse: typer alone takes longer than their help may.

A command can be called by its own name (`ottla groups describe NAME`) or by that of Kafka's script for the same thing
(`kafka-consumer-groups.sh --describe --group NAME`). Both have one parser. Under Kafka's name mistakes end with exit
code 1 and text has Kafka's form.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, NoReturn

from ottla.base.environment import BOOTSTRAP_SERVERS
from ottla.cli.failures import FAILED, MISUSED

DEFAULT_BOOTSTRAP_SERVER = "127.0.0.1:9092"
_WIDTH = 80
_HELP_COLUMN = 28
_MIN_GAP = 2


class CommandParser(argparse.ArgumentParser):
    def __init__(
        self,
        name: str,
        summary: str,
        *,
        words: str = "",
        verbs: Sequence[str] = (),
        examples: Sequence[str] = (),
        kafka: str = "",
    ) -> None:
        """`words` shows what may stand without a dash; `kafka` is the name of Kafka's script, if it was called so."""
        super().__init__(prog=kafka or f"ottla {name}", add_help=False)
        self.kafka = kafka
        self._summary = summary
        self._words = words
        self.verbs = tuple(verbs)
        self._examples = tuple(examples)
        if words:
            self.add_argument("words", nargs="*", help=argparse.SUPPRESS)

    def add_connection(self, *, broker_list: bool = True) -> None:
        """Where the brokers are. `--broker-list` is what older runbooks have; some tools mean ids by it."""
        default = None if self.kafka else os.environ.get(BOOTSTRAP_SERVERS) or DEFAULT_BOOTSTRAP_SERVER
        self.add_argument(
            *("--bootstrap-server", "-b"),
            default=default,
            metavar="HOST:PORT",
            help=f"a broker, or several; {default or 'must be given'}"
            if not self.kafka
            else "a broker, or several; must be given",
        )
        old = ["--bootstrap-servers", "--broker-list"] if broker_list else ["--bootstrap-servers"]
        self.add_argument(*old, dest="bootstrap_server", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        self.add_argument("--command-config", metavar="FILE", help="a properties file with settings of the client")
        self.add_argument("--zookeeper", action=_ZooKeeper, help=argparse.SUPPRESS)

    def add_output(self) -> None:
        if not self.kafka:
            self.add_argument(
                *("--output", "-o"), choices=("table", "json", "tsv"), default="table", help="table, json or tsv; table"
            )

    def add_help_option(self) -> None:
        self.add_argument("-h", "--help", action="help", help="Show this message and exit.")

    def take_topic(self, options: argparse.Namespace) -> None:
        """The topic may be a plain word, or an option."""
        if options.words:
            if len(options.words) > 1 or options.topic is not None:
                self.error("the topic is named twice")
            options.topic = options.words[0]

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        options = self.parse_intermixed_args(list(arguments))
        options.kafka = bool(self.kafka)
        if self.kafka:
            options.output = "kafka"
            if "bootstrap_server" in options and options.bootstrap_server is None:
                self.error('Missing required argument "[bootstrap-server]"')
        if self.verbs:
            self._find_verb(options)
        return options

    def _find_verb(self, options: argparse.Namespace) -> None:
        """The verb is a flag, as Kafka has it, or the first word."""
        flags = [verb for verb in self.verbs if getattr(options, verb.replace("-", "_"), False) is True]
        if options.words and options.words[0] in self.verbs and not (flags and self.kafka):
            flags.append(options.words.pop(0))
        if len(flags) != 1:
            named = ", ".join(f"--{verb}" for verb in self.verbs)
            if self.kafka:
                self.error(f"Command must include exactly one action: {named}")
            wrong = f"{options.words[0]!r} is no verb; " if options.words and not flags else ""
            self.error(f"{wrong}name exactly one of {', '.join(self.verbs)}")
        options.verb = flags[0]

    def add_verb_flags(self, helps: dict[str, str]) -> None:
        for verb, text in helps.items():
            self.add_argument(f"--{verb}", action="store_true", help=text)

    def add_flag(self, name: str, text: str) -> None:
        self.add_argument(name, action="store_true", help=text)

    # What is shown

    def format_help(self) -> str:
        head = f"Usage: {self.prog} [OPTIONS]{' ' + self._words if self._words else ''}\n"
        summary = textwrap.fill(self._summary, _WIDTH, initial_indent="  ", subsequent_indent="  ")
        options = "\n".join(_option_lines(action) for action in self._actions if action.help != argparse.SUPPRESS)
        examples = "".join(f"\n  {example}" for example in self._examples)
        tail = f"\n\nExamples:{examples}" if examples and not self.kafka else ""
        return f"{head}\n{summary}\n\nOptions:\n{options}{tail}\n"

    def error(self, message: str) -> NoReturn:
        if self.kafka:
            print(message, file=sys.stderr)
            raise SystemExit(FAILED)
        words = f" {self._words}" if self._words else ""
        usage = f"Usage: {self.prog} [OPTIONS]{words}\nTry '{self.prog} -h' for help."
        print(f"{usage}\n\nError: {message}", file=sys.stderr)
        raise SystemExit(MISUSED)


def _option_lines(action: argparse.Action) -> str:
    names = ", ".join(sorted(action.option_strings, key=len))
    if action.nargs != 0 and action.metavar is not None:
        names += f" [{action.metavar}]" if action.nargs == "?" else f" {action.metavar}"
    text = textwrap.wrap(action.help or "", _WIDTH - _HELP_COLUMN - _MIN_GAP)
    start = f"  {names}"
    indent = " " * (_HELP_COLUMN + _MIN_GAP)
    if len(start) > _HELP_COLUMN:
        return "\n".join([start, *(indent + line for line in text)])
    first, *rest = text or [""]
    return "\n".join([f"{start:<{_HELP_COLUMN + _MIN_GAP}}{first}", *(indent + line for line in rest)])


class _ZooKeeper(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        parser.error(
            "--zookeeper is gone: commands talk to a broker, which needs no ZooKeeper. "
            "Write --bootstrap-server HOST:PORT instead."
        )


def number(text: str) -> int:
    """A whole number, for `type=` of an option."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
