"""A producer in a process of its own that leaves its transaction open, until it is killed.

python -m tests.interop.transactions.open_and_wait CLIENT BOOTSTRAP TRANSACTIONAL_ID TIMEOUT_MS TOPIC
"""

from __future__ import annotations

import signal
import sys

from tests.interop.transactions.clients import make_writer

RECORDS = 100


def main() -> None:
    client, bootstrap, transactional_id, timeout_ms, topic = sys.argv[1:]
    writer = make_writer(client, bootstrap, transactional_id, int(timeout_ms))
    writer.begin()
    for number in range(RECORDS):
        writer.send(topic, b"never %d" % number)
    writer.flush()
    print("open", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
