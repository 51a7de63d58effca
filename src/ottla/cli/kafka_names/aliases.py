"""`ottla aliases`: Kafka's script names as small scripts that run our commands, for runbooks and test suites."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from ottla.cli.failures import errors_told
from ottla.cli.parsing import CommandParser

_EXAMPLES = ("ottla aliases ~/kafka/bin", "PATH=~/kafka/bin:$PATH kafka-topics.sh --list -b localhost:9092")


def parser() -> CommandParser:
    summary = (
        "Write kafka-topics.sh and the other scripts of Kafka into a directory. They take Kafka's options, print what "
        "Kafka's scripts print, and need no Java. A file that is no such script is not written over."
    )
    made = CommandParser("aliases", summary, words="DIRECTORY", examples=_EXAMPLES, connects=False)
    return made


def main(arguments: list[str]) -> int:
    made = parser()
    options = made.read(arguments)
    if len(options.words) != 1:
        made.error("name one directory")
    with errors_told():
        directory = Path(options.words[0]).expanduser()
        names = write_scripts(directory)
        print(f"Wrote {len(names)} scripts to {directory}.")
    return 0


def write_scripts(directory: Path) -> list[str]:
    from ottla.cli.kafka_names.scripts import SCRIPTS

    directory.mkdir(parents=True, exist_ok=True)
    texts = {name: script_text(name) for name in SCRIPTS}
    foreign = [name for name in SCRIPTS if (directory / name).exists() and not _is_ours(directory / name)]
    if foreign:
        raise FileExistsError(17, "is not a script of ours, and is not written over", str(directory / foreign[0]))
    for name, text in texts.items():
        path = directory / name
        path.write_text(text)
        path.chmod(0o755)
    return list(texts)


def script_text(name: str) -> str:
    return f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m ottla.cli.kafka_names.scripts {name} "$@"\n'


def _is_ours(path: Path) -> bool:
    return "ottla.cli.kafka_names" in path.read_text(errors="replace")
