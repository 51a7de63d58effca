"""The blocks of code in the documentation, which tests run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

PYTHON = "python"
NEEDS_KAFKA = "python apache-kafka"
"""How a block begins that our own broker cannot run yet; those run against Apache Kafka."""

_ADDRESS = re.compile(r"\b(?:localhost|127\.0\.0\.1):9092\b")


class Block(NamedTuple):
    document: str
    line: int
    code: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"

    def against(self, bootstrap: str) -> str:
        """The code with the address of a broker; lines are numbered as in the document."""
        return "\n" * self.line + _ADDRESS.sub(bootstrap, self.code)


def blocks(document: str, fence: str = PYTHON) -> list[Block]:
    text = (ROOT / document).read_text()
    found = re.finditer(rf"^```{re.escape(fence)}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(document, text.count("\n", 0, block.start()) + 1, block[1]) for block in found]
