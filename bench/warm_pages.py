"""Page cache that has been written to a moment ago, so that no measured file is the first to touch its memory.

On a virtual machine the first touch of a page goes to the host and can be ten times slower than writing to it. Which
side of a ratio would pay for that is chance, and the chance is larger than what is measured.
"""

from __future__ import annotations

import os
from pathlib import Path

_CHUNK = bytes(1 << 20)
_SPARE_BYTES = 16 << 20


def warm(directory: Path, bytes_to_be_written: int) -> None:
    """Writes and removes a file of twice the size. The kernel hands out first what was freed last.

    Anonymous memory would not do: its pages are freed in other sizes than those a file asks for.
    """
    path = directory / "warm.bin"
    with path.open("wb", buffering=0) as file:
        for _ in range(0, 2 * bytes_to_be_written + _SPARE_BYTES, len(_CHUNK)):
            os.write(file.fileno(), _CHUNK)
    path.unlink()
