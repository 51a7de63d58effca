"""Adds up orders per customer in a database, exactly once: `python main.py sqlite:totals.db`, or a mysql:// address.

The group assigns the partitions, but does not keep the offsets: those are in the database, in the transaction that
writes what the records led to.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Collection, Iterable
from contextlib import closing
from pathlib import Path

import ottla
from ottla import RebalanceListener, TopicPartition

sys.path.insert(0, str(Path(__file__).parent))

from store import OvertakenError, Store, StoreError, Total

TOPIC = os.environ.get("TOPIC", "orders")
GROUP_ID = os.environ.get("GROUP_ID", "totals")
RECORDS_AT_ONCE = int(os.environ.get("RECORDS_AT_ONCE", "500"))


class Places(RebalanceListener):
    """Where each partition of this consumer stands in the database."""

    def __init__(self, consumer: ottla.Consumer[bytes, bytes], store: Store) -> None:
        self._consumer = consumer
        self._store = store
        self.next_offsets: dict[TopicPartition, int] = {}

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        for partition, first in self._consumer.beginning_offsets(partitions).items():
            self.go_back(partition, first)

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self.next_offsets.pop(partition, None)

    def go_back(self, partition: TopicPartition, first: int = 0) -> None:
        offset = self._store.next_offset(partition, first)
        self._consumer.seek(partition, offset)
        self.next_offsets[partition] = offset


def totals_of(records: Iterable[ottla.ConsumerRecord[bytes, bytes]]) -> dict[str, Total]:
    totals: dict[str, Total] = {}
    for record in records:
        order = json.loads(record.value)
        so_far = totals.get(order["customer"], Total(0, 0))
        totals[order["customer"]] = Total(so_far.orders + 1, so_far.cents + order["cents"])
    return totals


def run(consumer: ottla.Consumer[bytes, bytes], store: Store) -> None:
    places = Places(consumer, store)
    consumer.subscribe([TOPIC], listener=places)
    while True:
        by_partition: dict[TopicPartition, list[ottla.ConsumerRecord[bytes, bytes]]] = {}
        for record in consumer.poll(timeout=1, max_records=RECORDS_AT_ONCE):
            by_partition.setdefault(record.topic_partition, []).append(record)
        for partition, records in by_partition.items():
            after = records[-1].offset + 1
            try:
                store.add(totals_of(records), partition, before=places.next_offsets[partition], after=after)
            except OvertakenError:
                places.go_back(partition)
            else:
                places.next_offsets[partition] = after


def main(url: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with (
        closing(Store(url, GROUP_ID)) as store,
        ottla.Consumer(
            bootstrap_servers=os.environ.get("OTTLA_BOOTSTRAP_SERVERS", "127.0.0.1:9092"),
            group_id=GROUP_ID,
            # With a name of its own a consumer that was killed gets its partitions back when it is started again.
            group_instance_id=os.environ.get("INSTANCE"),
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        ) as consumer,
    ):
        run(consumer, store)


if __name__ == "__main__":
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else "sqlite:totals.db")
    except (StoreError, ottla.errors.ClientError) as e:
        sys.exit(f"{type(e).__name__}: {e}")
