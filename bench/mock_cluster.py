"""librdkafka's mock cluster in a process of its own; prints its port and runs until it is stopped."""

from __future__ import annotations

import signal

from confluent_kafka import Producer


def main() -> None:
    host = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = host.list_topics(timeout=10).brokers.values()
    print(broker.port, flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
