"""What only the producer for threads has to bear: many threads, forks, callbacks, waiting with a limit."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

import pytest

from ottla.client import sync
from ottla.client.errors import ForkedError
from tests.broker_process import BrokerProcess
from tests.client.producers import values_of


def test_threads_share_a_producer(broker: BrokerProcess, new_topic: str) -> None:
    """They take turns after every few steps, which is when two of them could take the same place."""
    stored: dict[int, bytes] = {}
    with sync.Producer(bootstrap_servers=broker.bootstrap, batch_size=5000) as producer:

        def send(number: int) -> None:
            values = [b"%d:%d" % (number, count) for count in range(3000)]
            futures = [producer.send(new_topic, value) for value in values]
            stored.update((future.result(30).offset, value) for future, value in zip(futures, values, strict=True))

        threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
        interval_s = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(interval_s)
    values = values_of(broker.bootstrap, new_topic)
    assert [stored[offset] for offset in range(len(values))] == values
    for number in range(4):
        mine = [value for value in values if value is not None and value.startswith(b"%d:" % number)]
        assert mine == [b"%d:%d" % (number, count) for count in range(3000)]


def test_a_forked_child_is_told(broker: BrokerProcess, new_topic: str) -> None:
    with sync.Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send(new_topic, b"parent").result(10)
        child = os.fork()
        if child == 0:
            try:
                producer.send(new_topic, b"child")
            except ForkedError:
                os._exit(0)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert producer.send(new_topic, b"parent").result(10).offset == 1


@pytest.mark.parametrize("sealed", ["before", "after"])
def test_a_batch_that_is_sealed_while_a_value_is_added(broker: BrokerProcess, new_topic: str, sealed: str) -> None:
    class Interrupted(list[bytes | None]):
        """Another thread seals the batch at the worst moment: right before or right after the value is there."""

        def __setitem__(self, number: Any, value: Any) -> None:
            if sealed == "before":
                batch.seal()
            super().__setitem__(number, value)
            if sealed == "after":
                batch.seal()

    with sync.Producer(bootstrap_servers=broker.bootstrap, linger_ms=60_000, delivery_timeout_ms=100_000) as producer:
        first = producer.send(new_topic, b"value 1")
        batch = first._batch
        lane = batch.lane
        assert lane is not None
        lane.places = lane._all_places = Interrupted(lane.places)
        lane.stamped_until_s = 1e12
        second = producer.send(new_topic, b"value 2")
        third = producer.send(new_topic, b"value 3")
        producer.flush()
        assert [future.result(0).offset for future in (first, second, third)] == [0, 1, 2]
        assert (second._batch is batch) == (sealed == "after")
        assert third._batch is not batch
    assert values_of(broker.bootstrap, new_topic) == [b"value 1", b"value 2", b"value 3"]


def test_a_timestamp_of_ones_own_is_for_one_record_only(broker: BrokerProcess, new_topic: str) -> None:
    with sync.Producer(bootstrap_servers=broker.bootstrap, linger_ms=60_000, delivery_timeout_ms=100_000) as producer:
        before_ms = int(time.time() * 1000)
        futures = [producer.send(new_topic, b"now")]
        futures += [producer.send(new_topic, b"future", timestamp_ms=before_ms + 3_000_000)]
        futures += [producer.send(new_topic, b"now") for _ in range(20)]
        producer.flush()
        times = [future.result(0).timestamp_ms for future in futures]
    assert times[1] == before_ms + 3_000_000
    assert before_ms <= min(times) and max([times[0], *times[2:]]) < before_ms + 3_000_000


def test_waiting_can_be_limited(broker: BrokerProcess, new_topic: str) -> None:
    with sync.Producer(bootstrap_servers=broker.bootstrap, linger_ms=60_000, delivery_timeout_ms=100_000) as producer:
        future = producer.send(new_topic, b"lingers")
        with pytest.raises(TimeoutError):
            future.result(0.01)
        assert not future.done()
        producer.flush(10)
        assert future.exception() is None
        assert future.result(0).offset == 0


def test_callbacks_of_futures_are_called_once_and_may_send(broker: BrokerProcess, new_topic: str) -> None:
    seen: list[int] = []
    with sync.Producer(bootstrap_servers=broker.bootstrap) as producer:

        def again(future: sync.SendFuture) -> None:
            seen.append(future.result(0).offset)
            if len(seen) == 1:
                producer.send(new_topic, b"second")

        first = producer.send(new_topic, b"first")
        first.add_done_callback(again)
        first.result(10)
        first.add_done_callback(again)
    assert seen == [0, 0]
    assert values_of(broker.bootstrap, new_topic) == [b"first", b"second"]


def test_a_callback_that_raises_does_not_stop_the_producer(broker: BrokerProcess, new_topic: str) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("the user's mistake")

    with sync.Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send(new_topic, b"0", on_delivery=fail).result(10)
        producer.send(new_topic, b"1").add_done_callback(fail)
        producer.flush()
        assert producer.send(new_topic, b"2").result(10).offset == 2


def test_the_results_of_many_values(broker: BrokerProcess, new_topic: str) -> None:
    with sync.Producer(bootstrap_servers=broker.bootstrap, batch_size=500) as producer:
        results = producer.send_many(new_topic, [b"%d" % number for number in range(300)]).result(10)
        assert [result.offset for result in results] == list(range(300))
