"""A transactional producer of confluent-kafka (librdkafka) that commits again and again, to broker and mock alike.

python -m bench.transactions PORT TOPIC PARTITIONS RECORDS TRANSACTIONS

The mock cluster keeps transactions in memory and writes no markers, so it is a limit rather than an equal. Prints one
line of JSON.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

from confluent_kafka import Producer

VALUE = b"v" * 100
WARM_UP = 20


def commit_transactions(port: int, topic: str, partitions: int, records: int, transactions: int) -> list[float]:
    """How many seconds each transaction took, from its beginning to the confirmed commit."""
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "transactional.id": f"bench-{topic}-{records}",
            "linger.ms": 0,
            "log_level": 0,
        }
    )
    producer.init_transactions(30)
    took_s = []
    for _ in range(WARM_UP + transactions):
        begun_s = time.perf_counter()
        producer.begin_transaction()
        for number in range(records):
            producer.produce(topic, VALUE, partition=number % partitions)
        producer.commit_transaction(30)
        took_s.append(time.perf_counter() - begun_s)
    return took_s[WARM_UP:]


def main() -> None:
    port, topic, partitions, records, transactions = sys.argv[1:]
    took_s = commit_transactions(int(port), topic, int(partitions), int(records), int(transactions))
    result = {
        "transactions_per_s": len(took_s) / sum(took_s),
        "p50_ms": statistics.median(took_s) * 1000,
        "p99_ms": sorted(took_s)[int(len(took_s) * 0.99)] * 1000,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
