"""The options of commands that look after a cluster, read by argparse: typer alone takes longer than their help may.

A command can be called by its own name (`ottla groups describe NAME`) or by that of Kafka's script for the same thing
(`kafka-consumer-groups.sh --describe --group NAME`). Both have one parser. Under Kafka's name mistakes end with exit
code 1 and text has Kafka's form.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, NoReturn

from ottla.base.environment import BOOTSTRAP_SERVERS
from ottla.cli.failures import FAILED, MISUSED, nearest

DEFAULT_BOOTSTRAP_SERVER = "127.0.0.1:9092"
_WIDTH = 80
_HELP_COLUMN = 28
_MIN_GAP = 2
_NO_SERVER = {
    "kafka-console-producer.sh": "Missing required option(s) [bootstrap-server]",
    "kafka-consumer-perf-test.sh": "Missing required option(s) [bootstrap-server]",
    "kafka-topics.sh": "--bootstrap-server must be specified",
    "kafka-reassign-partitions.sh": "Please specify --bootstrap-server",
}
"""What Kafka's scripts say without one, if not the usual."""

_VERB_IS_WORD = "kafka-transactions.sh"
"""Of all other scripts of Kafka, words without a dash say nothing."""

_KAFKA_SENTENCES = (
    (r"unrecognized arguments: --(\S+).*", r"\1 is not a recognized option"),
    (r"argument --([\w.-]+)\S*: expected (?:one|at least one) argument", r"Option \1 requires an argument"),
    (
        r"argument --([\w.-]+)\S*: (?:invalid choice: )?('.*?')(?: is not a whole number| \(choose .*)",
        r"Cannot parse argument \2 of option \1",
    ),
)
"""What is wrong with an option, as argparse and as Kafka's parser say it."""


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
        connects: bool = True,
        broker_ids: bool = False,
        prints_rows: bool = False,
    ) -> None:
        """`words` shows what may stand without a dash; `kafka` is the name of Kafka's script, if it was called so.

        A command that `connects` takes the options of a client. In older runbooks `--broker-list` is one of them;
        where it has to mean `broker_ids`, the command takes it itself.
        """
        super().__init__(prog=kafka or f"ottla {name}", add_help=False, allow_abbrev=False)
        self.kafka = kafka
        self._summary = summary
        self._words = words
        self.verbs = tuple(verbs)
        self._examples = tuple(examples)
        self._last_options = [self._add_output] if prints_rows else []
        self._last_options.append(self._add_help_option)
        if words:
            self.add_argument("words", nargs="*", help=argparse.SUPPRESS)
        if connects:
            self._add_connection(broker_list=not broker_ids)

    def _add_connection(self, *, broker_list: bool) -> None:
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

    def _add_output(self) -> None:
        if not self.kafka:
            self.add_argument(
                *("--output", "-o"), choices=("table", "json", "tsv"), default="table", help="table, json or tsv; table"
            )

    def _add_help_option(self) -> None:
        self.add_argument("-h", "--help", action="help", help="Show this message and exit.")

    def _add_last_options(self) -> None:
        """They are shown after the command's own."""
        while self._last_options:
            self._last_options.pop(0)()

    def take_topic(self, options: argparse.Namespace) -> None:
        """The topic may be a plain word, or an option."""
        if options.words:
            if len(options.words) > 1 or options.topic is not None:
                self.error("the topic is named twice")
            options.topic = options.words[0]

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        self._add_last_options()
        options = self.parse_intermixed_args(list(arguments))
        options.kafka = bool(self.kafka)
        if self.kafka:
            self._refuse_repeated(arguments)
            if self._words and self.kafka != _VERB_IS_WORD:
                options.words = []
            options.output = "kafka"
            if "bootstrap_server" in options and options.bootstrap_server is None:
                self.error(_NO_SERVER.get(self.kafka, 'Missing required argument "[bootstrap-server]"'))
        if self.verbs:
            self._find_verb(options)
        return options

    def _refuse_repeated(self, arguments: Sequence[str]) -> None:
        """As Kafka's scripts do: of two values, one is not meant."""
        for action in self._actions:
            takes_one = action.option_strings and action.nargs is None and isinstance(action, argparse._StoreAction)
            given = [word for word in arguments if word.partition("=")[0] in action.option_strings]
            if takes_one and len(given) > 1:
                name = action.option_strings[0].lstrip("-")
                self.error(f"Found multiple arguments for option {name}, but you asked for only one")

    def _find_verb(self, options: argparse.Namespace) -> None:
        """The verb is a flag, as Kafka has it, or the first word."""
        flags = [verb for verb in self.verbs if getattr(options, verb.replace("-", "_"), False) is True]
        if options.words and options.words[0] in self.verbs and not (flags and self.kafka):
            flags.append(options.words.pop(0))
        if len(flags) != 1:
            named = ", ".join(f"--{verb}" for verb in self.verbs)
            if self.kafka:
                self.error(f"Command must include exactly one action: {named}")
            meant = nearest(options.words[0], self.verbs) if options.words else ""
            wrong = f"{options.words[0]!r} is no verb{meant or ';'} " if options.words and not flags else ""
            self.error(f"{wrong}name exactly one of {', '.join(self.verbs)}")
        options.verb = flags[0]

    def add_verb_flags(self, helps: dict[str, str]) -> None:
        for verb, text in helps.items():
            self.add_argument(f"--{verb}", action="store_true", help=text)

    def add_flag(self, name: str, text: str) -> None:
        self.add_argument(name, action="store_true", help=text)

    # What is shown

    def format_help(self) -> str:
        self._add_last_options()
        head = f"Usage: {self.prog} [OPTIONS]{' ' + self._words if self._words else ''}\n"
        summary = textwrap.fill(self._summary, _WIDTH, initial_indent="  ", subsequent_indent="  ")
        options = "\n".join(_option_lines(action) for action in self._actions if action.help != argparse.SUPPRESS)
        examples = "".join(f"\n  {example}" for example in self._examples)
        tail = f"\n\nExamples:{examples}" if examples and not self.kafka else ""
        return f"{head}\n{summary}\n\nOptions:\n{options}{tail}\n"

    def error(self, message: str) -> NoReturn:
        if self.kafka:
            print(_in_kafkas_words(message), file=sys.stderr)
            raise SystemExit(FAILED)
        mistyped = re.fullmatch(r"unrecognized arguments: (--\S+).*", message)
        if mistyped:
            message += nearest(mistyped[1], self._option_string_actions)
        words = f" {self._words}" if self._words else ""
        usage = f"Usage: {self.prog} [OPTIONS]{words}\nTry '{self.prog} -h' for help."
        print(f"{usage}\n\nError: {message}", file=sys.stderr)
        raise SystemExit(MISUSED)


def _in_kafkas_words(message: str) -> str:
    for pattern, sentence in _KAFKA_SENTENCES:
        if found := re.fullmatch(pattern, message):
            return found.expand(sentence)
    return message


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
