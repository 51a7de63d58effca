"""Where the store is served: a socket in the cluster's data directory, whatever the length of its path.

The system takes at most 107 bytes for a socket's path, which a data directory easily exceeds; the same directory by way
of a descriptor is always short.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOCKET_NAME = "metadata.sock"


@contextmanager
def short_path(directory: Path) -> Iterator[str]:
    """A path of the socket that can be bound or connected to while this lasts."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET_NAME}"
    finally:
        os.close(descriptor)
