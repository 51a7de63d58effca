"""The process that serves the store: whether it is gone for good."""

from __future__ import annotations

import os
import select


class ServingProcess:
    """By a descriptor where the system has them: the number of a dead process is soon another one's."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self._descriptor: int | None = os.pidfd_open(pid)
        except (AttributeError, OSError):
            self._descriptor = None

    @property
    def is_gone(self) -> bool:
        if self._descriptor is not None:
            # Not select(): a broker has thousands of files open, and that takes only the first 1,024 numbers.
            watch = select.poll()
            watch.register(self._descriptor, select.POLLIN)
            return bool(watch.poll(0))
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass
        return False

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
