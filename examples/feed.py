"""Makes the topics an example reads, and fills them with invented records.

python examples/feed.py operational_metrics --records 1000
"""

from __future__ import annotations

import argparse
import json
import os
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from ottla import Admin, NewTopic, Producer
from ottla.errors import ErrorCode

PARTITIONS = 2


class Record(NamedTuple):
    topic: str
    key: str
    value: dict[str, Any]


Feed = Callable[[random.Random, datetime], Iterator[Record]]


def operational_metrics(chance: random.Random, at: datetime) -> Iterator[Record]:
    while True:
        at += timedelta(milliseconds=chance.randrange(200))
        host = f"host-{chance.randrange(5)}"
        metric = chance.choice(["cpu", "memory", "disk"])
        value = round(chance.gauss(60, 15), 1)
        yield Record("metrics.samples", host, {"host": host, "metric": metric, "value": value, "at": at.isoformat()})


def messaging(chance: random.Random, at: datetime) -> Iterator[Record]:
    addresses = {"email": "ann@example.org", "text": "+49 30 901820", "pigeon": "the roof"}
    number = 0
    while True:
        number += 1
        (channel,) = chance.choices(list(addresses), [6, 3, 1])
        message = {"id": str(number), "sender": "shop", "recipient": addresses[channel], "channel": channel}
        yield Record("messages.outbox", str(number), {**message, "body": f"Your order {number} is on its way."})


def activity_tracking(chance: random.Random, at: datetime) -> Iterator[Record]:
    while True:
        at += timedelta(seconds=chance.randrange(60))
        user = f"user-{chance.randrange(20)}"
        page = chance.choice(["/", "/books", "/music", "/basket"])
        yield Record("activity.page-views", user, {"user": user, "page": page, "at": at.isoformat()})


def stream_processing(chance: random.Random, at: datetime) -> Iterator[Record]:
    for sku, name in (("A1", "apple"), ("B2", "bread"), ("C3", "cheese")):
        yield Record("catalogue.products", sku, {"sku": sku, "name": name, "category": "food"})
    number = 0
    while True:
        # One order in ten is sent again, as shops do when an answer was late.
        number += chance.random() > 0.1
        at += timedelta(seconds=1)
        amount = f"{chance.uniform(1, 50):.2f}".replace(".", chance.choice(".,"))
        order = {"id": str(number), "sku": chance.choice(["A1", " b2", "c3 ", "D4"]), "amount": amount}
        yield Record(
            "orders.raw", str(number), {**order, "currency": chance.choice(["eur", None]), "at": at.isoformat()}
        )


def event_sourcing(chance: random.Random, at: datetime) -> Iterator[Record]:
    accounts = [f"account-{number}" for number in range(10)]
    for account in accounts:
        yield Record("accounts.events", account, {"account": account, "type": "opened", "amount": None})
    while True:
        account, kind = chance.choice(accounts), chance.choice(["deposited", "withdrawn"])
        event = {"account": account, "type": kind, "amount": chance.randrange(1, 100)}
        yield Record("accounts.events", account, event)


def state_backup(chance: random.Random, at: datetime) -> Iterator[Record]:
    while True:
        wallet = f"wallet-{chance.randrange(10)}"
        yield Record("wallet.payments", wallet, {"wallet": wallet, "amount": chance.randrange(-50, 100)})


def offsets_in_database(chance: random.Random, at: datetime) -> Iterator[Record]:
    while True:
        customer = chance.choice(["ann", "bob", "cy", "dee"])
        yield Record("orders", customer, {"customer": customer, "cents": chance.randrange(100, 10_000)})


FEEDS: dict[str, Feed] = {
    feed.__name__: feed
    for feed in (
        operational_metrics,
        messaging,
        activity_tracking,
        stream_processing,
        event_sourcing,
        state_backup,
        offsets_in_database,
    )
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Fill the topics of an example with invented records.")
    parser.add_argument("example", choices=FEEDS)
    parser.add_argument("--records", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=None, help="the same seed gives the same records")
    parser.add_argument("--bootstrap-server", default=os.environ.get("OTTLA_BOOTSTRAP_SERVERS", "127.0.0.1:9092"))
    options = parser.parse_args()
    feed = FEEDS[options.example](random.Random(options.seed), datetime.now(UTC))
    records = [next(feed) for _ in range(options.records)]
    with Admin(bootstrap_servers=options.bootstrap_server) as admin:
        topics = sorted({record.topic for record in records})
        refused = admin.create_topics([NewTopic(topic, PARTITIONS) for topic in topics]).errors
    for error in refused.values():
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise SystemExit(str(error))
    with Producer(bootstrap_servers=options.bootstrap_server) as producer:
        for record in records:
            producer.send(record.topic, json.dumps(record.value).encode(), key=record.key.encode())
    print(f"{len(records):,} records are in {', '.join(topics)}.")


if __name__ == "__main__":
    main()
