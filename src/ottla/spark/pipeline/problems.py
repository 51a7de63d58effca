"""What is wrong with a pipeline and where: places in files, problems, and the error that carries them all."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.base.errors import OttlaError

_MAX_LISTED = 20


class Place(NamedTuple):
    """A line of a file; line 0 is the file (or whatever `file` names) as a whole."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file

    def below(self, lines: int) -> Place:
        return Place(self.file, self.line + lines) if self.line else self


class Problem(NamedTuple):
    place: Place
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class SpecError(OttlaError):
    """A pipeline that cannot run as it is written; each problem has its place."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = sorted(set(problems))
        super().__init__("\n".join(map(str, self.problems)))


def suggestion(wrong: str, known: Iterable[str]) -> str:
    """A sentence that names what was probably meant, or what there is; empty if there is nothing, or too much."""
    names = sorted(known)
    close = difflib.get_close_matches(wrong, names)
    if close:
        return f" Did you mean {close[0]!r}?"
    return f" There is {', '.join(map(repr, names))}." if 0 < len(names) <= _MAX_LISTED else ""
