"""A transcript: commands as somebody types them, what they print, and where Kafka's own tools print something else.

    # a remark
    $ bin/kafka-topics.sh --list --bootstrap-server localhost:9092
    < a line of standard input
    > a line of standard output; a backslash at its end says that no line end follows
    ! a line of standard error
    = 1 is the exit code, if it is not 0
    ~ why Kafka's tool says something else, which follows: ~>, ~! and ~=

A command that begins with & goes on, until ^C.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

TRANSCRIPT = Path(__file__).parents[2] / "golden" / "terminal_day.txt"


class Said(NamedTuple):
    exit_code: int = 0
    output: str = ""
    error: str = ""


NOTHING = Said()


@dataclass
class Step:
    command: str
    goes_on: bool = False
    remarks: list[str] = field(default_factory=list)
    text: str = ""
    ours: Said = NOTHING
    reason: str = ""
    theirs: Said | None = None
    """What Kafka's tool says; None if it is the same but for the order of lines."""


def parse(text: str) -> list[Step]:
    steps: list[Step] = []
    remarks: list[str] = []
    for line in text.splitlines():
        sign, rest = line[:2], line[2:]
        if line.startswith("#") or not line:
            remarks.append(line)
        elif sign in ("$ ", "& "):
            steps.append(Step(rest, sign == "& ", remarks))
            remarks = []
        elif sign == "< ":
            steps[-1].text += f"{rest}\n"
        elif sign == "~ ":
            steps[-1].reason, steps[-1].theirs = rest, Said()
        elif sign[0] == "~":
            theirs = steps[-1].theirs
            assert theirs is not None, line
            steps[-1].theirs = _said(theirs, sign[1], rest[1:])
        else:
            steps[-1].ours = _said(steps[-1].ours, sign[0], rest)
    return steps


def _said(said: Said, sign: str, rest: str) -> Said:
    if sign == "=":
        return said._replace(exit_code=int(rest))
    line = rest[:-1] if rest.endswith("\\") else f"{rest}\n"
    if sign == ">":
        return said._replace(output=said.output + line)
    assert sign == "!", sign
    return said._replace(error=said.error + line)


def written(steps: Iterable[Step]) -> str:
    return "".join(f"{line}\n" for step in steps for line in _lines(step))


def _lines(step: Step) -> Iterator[str]:
    yield from step.remarks
    yield f"{'&' if step.goes_on else '$'} {step.command}"
    yield from (f"< {line}" for line in step.text.splitlines())
    yield from _said_lines(step.ours, "")
    if step.theirs is not None:
        yield f"~ {step.reason}"
        yield from _said_lines(step.theirs, "~")


def _said_lines(said: Said, start: str) -> Iterator[str]:
    for sign, text in ((">", said.output), ("!", said.error)):
        lines = text.split("\n")
        yield from (f"{start}{sign} {line}" for line in lines[:-1])
        if lines[-1]:
            yield f"{start}{sign} {lines[-1]}\\"
    if said.exit_code:
        yield f"{start}= {said.exit_code}"


def differ(ours: Said, theirs: Said) -> bool:
    """Whether more than the order of rows differs, or of the parts of JSON. Some of Kafka's tables have but one line.

    Kafka's log, to which its tools write errors once more, is switched off here.
    """
    ours = ours._replace(error=re.sub(r"^(ERROR|WARN) .*\n( \(org.*\n)?", "", ours.error, flags=re.MULTILINE))
    return ours.exit_code != theirs.exit_code or any(
        sorted(one) != sorted(other) or sorted(_pieces(one)) != sorted(_pieces(other))
        for one, other in ((ours.output, theirs.output), (ours.error, theirs.error))
    )


def _pieces(text: str) -> list[str]:
    return re.split(r"[\s{}\[\],]+", text)
