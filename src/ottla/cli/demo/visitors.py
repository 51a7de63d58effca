"""Invented visitors of an invented shop: a thread that sends their page views to a topic."""

from __future__ import annotations

import json
import random
import threading
import time
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from ottla import Admin, Consumer, NewTopic, Producer, TopicPartition
from ottla.base.errors import ErrorCode, KafkaError

TOPIC = "demo.page-views"
PARTITIONS = 4
PAGES = ("/", "/search", "/books", "/music", "/games", "/basket", "/checkout", "/help")
_WEIGHTS = (30, 20, 14, 10, 9, 8, 5, 4)
_TICK_S = 0.05


class Visitors:
    """Sends about `rate` page views a second while the block lasts; at its end all of them have been acknowledged."""

    def __init__(self, bootstrap_servers: str, rate: int) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._rate = rate
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="visitors", daemon=True)
        self.sent = 0
        self.failure: KafkaError | None = None

    def __enter__(self) -> Self:
        self._create_topic()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Returns when everything sent has been acknowledged, or could not be (`failure`)."""
        self._is_over.set()
        self._thread.join()

    def _create_topic(self) -> None:
        with Admin(bootstrap_servers=self._bootstrap_servers) as admin:
            refused = admin.create_topics([NewTopic(TOPIC, PARTITIONS)]).errors.get(TOPIC)
        if refused is not None and refused.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise refused

    def _run(self) -> None:
        try:
            with Producer(bootstrap_servers=self._bootstrap_servers, linger_ms=20) as producer:
                self._visit(producer)
        except KafkaError as e:
            self.failure = e

    def _visit(self, producer: Producer) -> None:
        chance = random.Random()
        began = time.monotonic()
        while not self._is_over.wait(_TICK_S):
            due = int((time.monotonic() - began) * self._rate) - self.sent
            for _ in range(due):
                visitor = f"visitor-{chance.randrange(1000)}"
                (page,) = chance.choices(PAGES, _WEIGHTS)
                view = {"visitor": visitor, "page": page, "at": datetime.now(UTC).isoformat()}
                producer.send(TOPIC, json.dumps(view).encode(), key=visitor.encode())
            self.sent += due


def count_page_views(bootstrap_servers: str) -> int:
    """How many the topic holds, from this run and from earlier ones."""
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    with Consumer(bootstrap_servers=bootstrap_servers) as consumer:
        return sum(consumer.end_offsets(partitions).values())
