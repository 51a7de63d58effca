"""What Kafka's tools were seen to print: a recording that lies next to the project, and is not part of it.

A recorded command has a line number in that file, which is its name here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.terminal.sessions import without_java
from tests.interop.terminal.transcript import Said, differ

RECORDING = next(
    (found for parent in Path(__file__).parents if (found := parent / "shared/facts/cli-transcripts.md").exists()),
    None,
)
_COMMAND = re.compile(r"### `(.*)`$")
_LEFT_OUT = "<MORE"
_FIGURES = ("Performance tools", "kafka-transactions.sh", "kafka-log-dirs.sh")
"""Parts whose numbers, and with them the widths of columns, are of one run only."""
_CHANGING: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}", "<DATE>"),
    (r"(?<=TopicId: )[\w-]{22}", "<TOPICID>"),
    (r"(?<=Cluster ID: )[\w-]{22}", "<CLUSTERID>"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<UUID>"),
    (r"\b1\d{12}\b", "<MS>"),
    (r"(?<=crc: )\d+", "<CRC>"),
    (r'(?<="avg_throughput":)[\d.E-]+', "<N>"),
    # Where replicas are, and who coordinates, is a broker's choice.
    (r"(?<=Leader: )\d+", "<N>"),
    (r"(?<=Replicas: )[\d,]+", lambda found: re.sub(r"\d+", "<N>", found[0])),
    (r"(?<=Isr: )[\d,]+", lambda found: re.sub(r"\d+", "<N>", found[0])),
    (r"<PORT\d>  \(\d\)", "<PORT>  (<N>)"),
    # Brokers with a ZooKeeper do not tell who was in sync last (KIP-966); ours say that nobody is missing.
    (r"(?<=Elr: )N/A", ""),
)


@dataclass
class Recorded:
    line: int
    part: str
    command: str
    remark: str = ""
    text: str = ""
    files: dict[str, str] = field(default_factory=dict)
    """Those it is the first to need."""
    theirs: Said = field(default_factory=Said)

    def differs(self, ours: Said) -> bool:
        """Of lines that were left out nothing is asked."""
        ours, theirs = (comparable(said, figures=self.part not in _FIGURES) for said in (ours, self.theirs))
        if _LEFT_OUT not in theirs.output + theirs.error:
            return differ(ours, theirs)
        lines = [line for line in theirs.output.splitlines() if _LEFT_OUT not in line]
        return ours.exit_code != theirs.exit_code or not set(lines) <= set(ours.output.splitlines())


def parse_recording(text: str) -> list[Recorded]:
    found: list[Recorded] = []
    part, files = "", dict[str, str]()
    lines = enumerate(text.split("\n"), 1)
    for number, line in lines:
        if line.startswith("## "):
            part = line[3:]
        elif line.startswith("file ") and line.endswith(":"):
            next(lines)
            files[line[5:-1]] = _block(lines)
        elif heading := _COMMAND.match(line):
            found.append(Recorded(number, part, heading[1], files=files))
            files = {}
        elif line.startswith("stdin: `"):
            found[-1].text = line[8:-1].encode().decode("unicode_escape")
        elif line.startswith("~~~std"):
            block = _block(lines)
            if "no-newline-at-end" in line:
                block = block[:-1]
            name = "output" if line.startswith("~~~stdout") else "error"
            found[-1].theirs = found[-1].theirs._replace(**{name: block})
        elif line.startswith("(") and found and not found[-1].remark:
            found[-1].remark = line
        elif code := re.match(r"exit (\d+)", line):
            found[-1].theirs = found[-1].theirs._replace(exit_code=int(code[1]))
    return found


def _block(lines: enumerate[str]) -> str:
    kept = []
    for _, line in lines:
        if line == "~~~":
            break
        kept.append(line)
    return "".join(f"{line}\n" for line in kept)


def comparable(said: Said, *, figures: bool = True) -> Said:
    said = said._replace(output=_plain(said.output), error=_plain(said.error))
    return said if figures else said._replace(output=_without_figures(said.output), error=_without_figures(said.error))


def _plain(text: str) -> str:
    """Without lines of a log, tables of options and stack traces; numbers that no two runs share have names."""
    text = re.sub(r"^(\[<TS>\]|ERROR|WARN) .*\n( \(org.*\n)?", "", text, flags=re.MULTILINE)
    text = re.sub(r"^(<STACK>|<USAGE>|<REPEATED>| \(org.*\))\n", "", text, flags=re.MULTILINE)
    text = without_java(text)
    for pattern, name in _CHANGING:
        text = re.sub(pattern, name, text)
    return text


def _without_figures(text: str) -> str:
    return re.sub(r" +", " ", re.sub(r"\b\d+(\.\d+)?\b|<MS>", "<N>", text))
