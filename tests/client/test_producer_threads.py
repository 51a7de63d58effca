"""What only the producer for threads has to bear: many threads, forks, callbacks, waiting with a limit."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import Queue
from typing import Any

import pytest

from ottla.client import sync
from ottla.client.core.metadata import MetadataCache
from ottla.client.core.producer.partitioners import Partitioner
from ottla.client.errors import ClientClosedError, ConcurrentUseError, ForkedError
from ottla.testing import ApiKey, EmbeddedBroker
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
                thread.join(60)
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


@pytest.mark.parametrize("error", [RuntimeError("the user's mistake"), SystemExit(1)], ids=["mistake", "exit"])
def test_a_callback_that_raises_does_not_stop_the_producer(
    broker: BrokerProcess, new_topic: str, error: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise error

    with sync.Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send(new_topic, b"0", on_delivery=fail).result(10)
        producer.send(new_topic, b"1").add_done_callback(fail)
        producer.flush()
        assert producer.send(new_topic, b"2").result(10).offset == 2


def test_the_results_of_many_values(broker: BrokerProcess, new_topic: str) -> None:
    with sync.Producer(bootstrap_servers=broker.bootstrap, batch_size=500) as producer:
        results = producer.send_many(new_topic, [b"%d" % number for number in range(300)]).result(10)
        assert [result.offset for result in results] == list(range(300))


def test_a_forked_child_does_not_wait_for_records_of_the_parent(broker: BrokerProcess, new_topic: str) -> None:
    settings: dict[str, Any] = {"linger_ms": 60_000, "delivery_timeout_ms": 100_000}
    with sync.Producer(bootstrap_servers=broker.bootstrap, **settings) as producer:
        one = producer.send(new_topic, b"parent")
        many = producer.send_many(new_topic, [b"parent"] * 3)
        child = os.fork()
        if child == 0:
            try:
                told = [type(_error_of(partial(future.result, 5))) for future in (one, *many)]
                os._exit(0 if told == [ForkedError] * 4 else 1)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        producer.flush()
        assert one.result(0).offset == 0


def test_a_flush_that_takes_too_long_says_so(broker: BrokerProcess, new_topic: str) -> None:
    with sync.Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send(new_topic, b"").result(10)
        producer.send(new_topic, b"")
        with pytest.raises(TimeoutError, match="not every record was acknowledged within 0 s"):
            producer.flush(0)


def _error_of(call: Callable[[], object]) -> Exception | None:
    try:
        call()
    except Exception as e:
        return e
    return None


def _told_in_callback(producer: sync.Producer, topic: str, call: Callable[[], object]) -> Exception | None:
    told: Queue[Exception | None] = Queue()

    def on_delivery(*_: object) -> None:
        told.put(_error_of(call))

    producer.send(topic, b"", on_delivery=on_delivery)
    return told.get(timeout=10)


def test_a_callback_cannot_wait_for_its_own_producer(broker: BrokerProcess, new_topic: str) -> None:
    with sync.Producer(bootstrap_servers=broker.bootstrap, transactional_id=f"tx-{new_topic}") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        calls: list[Callable[[], object]] = [
            producer.flush,
            lambda: producer.partitions_for(new_topic),
            producer.commit_transaction,
            producer.abort_transaction,
            lambda: producer.send_offsets({}, "g"),
            lambda: producer.send(new_topic, b"").result(),
            lambda: producer.send_many(new_topic, [b""]).result(),
        ]
        for call in calls:
            assert isinstance(_told_in_callback(producer, new_topic, call), ConcurrentUseError)
        assert producer.send(new_topic, b"").result(10).offset == len(calls) + 2
        producer.commit_transaction()


def test_a_callback_may_wait_for_another_producer(broker: BrokerProcess, new_topic: str) -> None:
    with (
        sync.Producer(bootstrap_servers=broker.bootstrap) as producer,
        sync.Producer(bootstrap_servers=broker.bootstrap) as other,
    ):
        assert _told_in_callback(producer, new_topic, lambda: other.send(new_topic, b"").result(10)) is None
        assert _told_in_callback(producer, new_topic, other.flush) is None


def test_a_callback_may_close_its_producer(broker: BrokerProcess, new_topic: str) -> None:
    settings: dict[str, Any] = {"linger_ms": 60_000, "delivery_timeout_ms": 100_000}
    producer = sync.Producer(bootstrap_servers=broker.bootstrap, **settings)
    stored, unsent = threading.Event(), Queue[sync.SendFuture]()

    def on_delivery(*_: object) -> None:
        unsent.put(producer.send(new_topic, b"unsent"))
        producer.close()
        stored.set()

    producer.send(new_topic, b"stored", on_delivery=on_delivery)
    _error_of(producer.flush)  # it may be told that the producer was closed
    assert stored.wait(10)
    with pytest.raises(ClientClosedError):
        unsent.get().result(10)
    with pytest.raises(ClientClosedError):
        producer.send(new_topic, b"")
    producer.close()
    assert values_of(broker.bootstrap, new_topic) == [b"stored"]


@pytest.mark.parametrize("call", ["partitions_for", "flush", "send", "close"])
def test_a_partitioner_cannot_use_its_own_producer(broker: BrokerProcess, new_topic: str, call: str) -> None:
    arguments = () if call in ("flush", "close") else (new_topic,)

    def choose(*_: object) -> int:
        getattr(producers[0], call)(*arguments)
        return 0

    chooser: Partitioner = choose
    producers = [sync.Producer(bootstrap_servers=broker.bootstrap, partitioner=chooser)]
    with producers[0] as producer:
        with pytest.raises(ConcurrentUseError, match="partitioner"):
            producer.send(new_topic, b"")
        assert producer.send(new_topic, b"", partition=0).result(10).offset == 0


def test_close_ends_all_waiting() -> None:
    """For metadata, and for the answer of a coordinator: each in a thread of its own."""
    with EmbeddedBroker(config={"auto.create.topics.enable": False}) as embedded:
        embedded.create_topic("t")
        producer = sync.Producer(
            bootstrap_servers=embedded.bootstrap_servers, transactional_id="tx", buffer_memory=1000, linger_ms=0
        )
        silent = embedded.faults.drop(ApiKey.INIT_PRODUCER_ID, times=None)
        told: Queue[Exception | None] = Queue()
        calls = [lambda: producer.send("nowhere", b""), lambda: producer.partitions_for("nowhere")]
        threads = [
            threading.Thread(target=lambda call=call: told.put(_error_of(call)))
            for call in (*calls, producer.init_transactions)
        ]
        for thread in threads:
            thread.start()
        while not silent.hits:
            time.sleep(0.001)
        producer.close()
        for thread in threads:
            thread.join(10)
            assert isinstance(told.get(timeout=10), ClientClosedError)


def test_what_is_known_of_topics_changes_while_no_thread_looks(
    broker: BrokerProcess, new_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that a thread asked for meanwhile went unnoticed, or ended the producer: the dictionary had grown."""
    with sync.Producer(bootstrap_servers=broker.bootstrap) as producer:
        metadata = producer._engine.metadata
        was_held: list[bool] = []

        def update(*arguments: Any) -> None:
            was_held.append(producer._lock.locked())
            MetadataCache.update(metadata, *arguments)

        monkeypatch.setattr(metadata, "update", update)
        producer.partitions_for(new_topic)
    assert was_held and all(was_held)


def test_close_in_the_midst_of_calls(broker: BrokerProcess, new_topic: str) -> None:
    """Whenever it comes, every call returns, or says that the producer is closed."""
    for _ in range(20):
        producer = sync.Producer(bootstrap_servers=broker.bootstrap)
        told: Queue[Exception | None] = Queue()

        def work(producer: sync.Producer = producer, told: Queue[Exception | None] = told) -> None:
            def use() -> None:
                while True:
                    producer.send(new_topic, b"", key=b"k")
                    producer.partitions_for(new_topic)
                    producer.flush()

            told.put(_error_of(use))

        threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        producer.partitions_for(new_topic)
        producer.close()
        for _ in threads:
            assert isinstance(told.get(timeout=10), ClientClosedError)


def run_program(program: str, broker: EmbeddedBroker) -> str:
    """What it says on its way out."""
    command = [sys.executable, "-c", program, broker.bootstrap_servers]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stderr


def test_what_is_left_when_the_program_ends_is_sent(ottla: EmbeddedBroker) -> None:
    ottla.create_topic("t")
    program = """
import sys, ottla
producer = ottla.Producer(bootstrap_servers=sys.argv[1], linger_ms=60_000)
for number in range(10):
    producer.send("t", b"%d" % number)
"""
    assert run_program(program, ottla) == ""
    assert values_of(ottla.bootstrap_servers, "t") == [b"%d" % number for number in range(10)]


def test_what_cannot_be_sent_when_the_program_ends_is_said_to_be_lost(ottla: EmbeddedBroker) -> None:
    ottla.create_topic("t")
    ottla.faults.drop(ApiKey.PRODUCE, times=None)
    program = """
import sys, ottla
from ottla.client.interrupts import leftovers
leftovers.LAST_S = 0.2
for number in range(3):
    ottla.Producer(bootstrap_servers=sys.argv[1]).send("t", b"lost")
"""
    assert (
        run_program(program, ottla).splitlines()
        == ["records not sent, because the program ended before the producer was closed: 1"] * 3
    )


def test_threads_that_go_on_sending_when_the_program_ends_are_not_disturbed(ottla: EmbeddedBroker) -> None:
    ottla.create_topic("t")
    program = """
import sys, threading, ottla
producer = ottla.Producer(bootstrap_servers=sys.argv[1])
began = threading.Event()
def send():
    while True:
        producer.send("t", b"v", key=b"k")
        began.set()
threading.Thread(target=send, daemon=True).start()
began.wait()
"""
    assert run_program(program, ottla) == ""
    assert set(values_of(ottla.bootstrap_servers, "t")) == {b"v"}
