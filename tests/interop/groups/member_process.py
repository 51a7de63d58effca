"""A member in a process of its own, for tests that stop or kill it; says what happens to it, a line of JSON each.

python -m tests.interop.groups.member_process '{"client": …}'
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Iterable

from tests.interop.groups.clients import Seat, run
from tests.interop.groups.ledger import Partition


class PrintedEvents:
    def assigned(self, partitions: Iterable[Partition]) -> None:
        self._say("assigned", sorted(partitions))

    def revoked(self, partitions: Iterable[Partition]) -> None:
        self._say("revoked", sorted(partitions))

    def consumed(self, partition: Partition, offset: int, value: bytes) -> None:
        self._say("consumed", [partition, offset, value.decode()])

    def failed(self, error: str) -> None:
        self._say("failed", error)

    def _say(self, kind: str, content: object) -> None:
        sys.stdout.write(json.dumps([time.monotonic(), kind, content]) + "\n")
        sys.stdout.flush()


def main() -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    given = json.loads(sys.argv[1])
    run(Seat(**given | {"topics": tuple(given["topics"])}), PrintedEvents(), stop)


if __name__ == "__main__":
    main()
