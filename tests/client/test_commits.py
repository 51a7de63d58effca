"""Commits in trouble: their order, how long they may hold up a poll, and callbacks that fail; both shells."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pytest

from ottla.base.types import TopicPartition
from ottla.client.aio.consumer.commits import Commits
from ottla.client.core.consumer.cursors import OffsetAndMetadata
from ottla.client.core.group.rebalance import RebalanceListener
from ottla.client.errors import ClientClosedError, ClientError
from ottla.testing import ApiKey, EmbeddedBroker, ErrorCode
from tests.client.conftest import QUICK_GROUPS
from tests.client.consumer_shells import PATIENCE_S, Shell, open_shell, read, wait_until, write
from tests.log_lines import lines_of

VALUES = [b"value-%d" % number for number in range(20)]
QUICK = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 50}
PROTOCOLS = {"classic": QUICK, "consumer": {"group_protocol": "consumer"}}
ENDLESS = {"default_api_timeout_ms": 3_600_000}
"""A poll that waited for a commit would wait until the test has run out of patience."""


@pytest.fixture(scope="module")
def running_broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=dict(QUICK_GROUPS)) as broker:
        yield broker


@pytest.fixture
def broker(running_broker: EmbeddedBroker) -> Iterator[EmbeddedBroker]:
    yield running_broker
    running_broker.faults.clear()


@pytest.fixture(params=["sync", "aio"])
def shell(request: pytest.FixtureRequest, broker: EmbeddedBroker) -> Iterator[Shell]:
    with open_shell(request.param, broker.bootstrap_servers) as opened:
        yield opened


@pytest.fixture
def topic(broker: EmbeddedBroker, new_topic: str) -> str:
    broker.create_topic(new_topic, partitions=2)
    write(broker.bootstrap_servers, new_topic, VALUES)
    return new_topic


class Outcomes:
    def __init__(self) -> None:
        self.errors: list[ClientError | None] = []

    def __call__(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], error: ClientError | None) -> None:
        self.errors.append(error)


class Interceptor:
    def __init__(self) -> None:
        self.commits: list[Mapping[TopicPartition, OffsetAndMetadata]] = []

    def on_consume(self, records: list[Any]) -> list[Any]:
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.commits.append(offsets)


class Failing:
    def on_consume(self, records: list[Any]) -> list[Any]:
        records.clear()
        raise RuntimeError("on_consume")

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        raise RuntimeError("on_commit")


class Forgetful(Interceptor):
    def on_consume(self, records: list[Any]) -> Any:
        pass


def committed(consumer: Any, partition: TopicPartition) -> int | None:
    found = consumer.committed([partition])[partition]
    return None if found is None else int(found.offset)


def are_shared(*consumers: Any) -> bool:
    return all(len(consumer.assignment) == 2 // len(consumers) for consumer in consumers)


# Order


def test_a_commit_waits_for_those_begun_before(broker: EmbeddedBroker, shell: Shell, topic: str) -> None:
    consumer = shell(group_id=topic, enable_auto_commit=False)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.commit({partition: 1})
    outcomes = Outcomes()
    broker.faults.error(ApiKey.OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    consumer.commit_async({partition: 5}, outcomes)
    consumer.commit({partition: 15})
    # The first was not tried again, and its callback was called before the second was done.
    assert [error.code for error in outcomes.errors if error] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert committed(consumer, partition) == 15
    broker.faults.delay(ApiKey.OFFSET_COMMIT, 100)
    for offset in (6, 7, 8):
        consumer.commit_async({partition: offset}, outcomes)
    consumer.commit({partition: 16})
    assert outcomes.errors[1:] == [None] * 3
    assert committed(consumer, partition) == 16


def test_a_commit_says_if_its_turn_does_not_come(broker: EmbeddedBroker, shell: Shell, topic: str) -> None:
    consumer = shell(group_id=topic, enable_auto_commit=False)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    outcomes = Outcomes()
    broker.faults.drop(ApiKey.OFFSET_COMMIT)
    consumer.commit_async({partition: 5}, outcomes)
    with pytest.raises(ClientError, match="earlier commits") as refused:
        consumer.commit({partition: 15}, timeout=0.05)
    assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
    consumer.close(timeout=0.05)
    assert [type(error) for error in outcomes.errors] == [ClientClosedError]


def test_offsets_that_cannot_be_sent_are_refused(shell: Shell, topic: str) -> None:
    consumer = shell(group_id=topic, enable_auto_commit=False)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    for wrong in (5.5, 2**70):
        with pytest.raises(ClientError, match="cannot be committed"):
            consumer.commit({partition: wrong})
    consumer.commit({partition: 5})
    assert committed(consumer, partition) == 5


def test_one_automatic_commit_at_a_time(broker: EmbeddedBroker, shell: Shell, topic: str) -> None:
    consumer = shell(group_id=topic, auto_commit_interval_ms=1)
    consumer.assign([(topic, 0)])
    silent = broker.faults.drop(ApiKey.OFFSET_COMMIT)
    wait_until(lambda: silent.hits == 1, consumer)
    for _ in range(10):
        consumer.poll(0.005)
    assert len(consumer._inner._commits._pending) == 1
    consumer.close(timeout=0.05)


def test_a_poll_that_waits_does_not_ask_all_the_time_whether_to_commit(
    shell: Shell, new_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Commits] = []
    monkeypatch.setattr(Commits, "begin_if_due", lambda self: looks.append(self))
    consumer = shell(group_id=new_topic, auto_commit_interval_ms=0)
    consumer.subscribe([new_topic])
    assert consumer.poll(0.5) == []
    assert len(looks) < 50


def test_automatic_commits_go_on_after_trouble(broker: EmbeddedBroker, shell: Shell, topic: str) -> None:
    consumer = shell(group_id=topic, auto_commit_interval_ms=10)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    broker.faults.error(ApiKey.OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=3)
    read(consumer, 20)
    wait_until(lambda: committed(consumer, partition) == 20, consumer)


# Partitions that go


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_commit_before_a_revocation_does_not_hold_up_polls(
    broker: EmbeddedBroker, shell: Shell, topic: str, protocol: str
) -> None:
    first = shell(group_id=topic, **ENDLESS, **PROTOCOLS[protocol])
    first.subscribe([topic])
    read(first, 20)
    loading = broker.faults.error(ApiKey.OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=None)
    second = shell(group_id=topic, **PROTOCOLS[protocol])
    second.subscribe([topic])
    deadline_s = time.monotonic() + PATIENCE_S
    while not loading.hits:
        assert time.monotonic() < deadline_s
        assert first.poll(0.05) == second.poll(0.05) == []
    write(broker.bootstrap_servers, topic, [b"meanwhile"])
    while loading.hits < 3:
        assert time.monotonic() < deadline_s
        # What came now was not there when the commit was begun, so it must not be handed out before the revocation.
        assert first.poll(0.05) == []
    loading.cancel()
    late = wait_until(lambda: are_shared(first, second), first, second)
    while not late:
        assert time.monotonic() < deadline_s
        late = first.poll(0.05) + second.poll(0.05)
    assert [record.value for record in late] == [b"meanwhile"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_offsets_of_a_deleted_topic_do_not_hold_up_a_revocation(
    broker: EmbeddedBroker, shell: Shell, topic: str, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = shell(group_id=topic, **ENDLESS, **PROTOCOLS[protocol])
    first.subscribe([topic])
    read(first, 20)
    broker.faults.error(ApiKey.OFFSET_COMMIT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, times=None)
    second = shell(group_id=topic, **PROTOCOLS[protocol])
    second.subscribe([topic])
    deadline_s = time.monotonic() + PATIENCE_S
    while not are_shared(first, second):
        assert time.monotonic() < deadline_s
        first.poll(0.05)
        second.poll(0.05)
    first.close()
    assert "closed before all commits are done" not in caplog.text


def test_interceptors_hear_of_commits_when_partitions_go(shell: Shell, topic: str) -> None:
    seen, at_the_end = Interceptor(), Interceptor()
    first = shell(group_id=topic, interceptors=[seen], **QUICK)
    first.subscribe([topic])
    read(first, 20)
    second = shell(group_id=topic, interceptors=[at_the_end], **QUICK)
    second.subscribe([topic])
    wait_until(lambda: are_shared(first, second), first, second)
    assert [offsets[TopicPartition(topic, 0)].offset for offsets in seen.commits] == [20]
    wait_until(lambda: bool(second._inner._engine.cursors.committable()), first, second)
    held = set(second.assignment)
    second.close()
    assert [set(offsets) for offsets in at_the_end.commits] == [held]


def test_what_is_assigned_no_longer_is_committed(shell: Shell, topic: str) -> None:
    consumer = shell(group_id=topic)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    consumer.assign([first])
    read(consumer, 20)
    consumer.assign([second])
    wait_until(lambda: committed(consumer, first) == 20, consumer)
    consumer.assign([first])
    consumer.seek(first, 7)
    consumer.unsubscribe()
    consumer.close()
    assert committed(shell(group_id=topic), first) == 7


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_who_unsubscribes_commits_and_is_told(shell: Shell, topic: str, protocol: str) -> None:
    partition = TopicPartition(topic, 0)
    seen: list[tuple[set[TopicPartition], int | None]] = []

    class Diary(RebalanceListener):
        def on_revoked(self, partitions: Collection[TopicPartition]) -> Any:
            if shell.kind == "aio":
                return self.look(partitions)
            seen.append((set(partitions), committed(consumer, partition)))
            consumer.commit({partition: 9})
            # Nobody has to be told a second time.
            consumer.unsubscribe()

        async def look(self, partitions: Collection[TopicPartition]) -> None:
            found = (await consumer._inner.committed([partition]))[partition]
            seen.append((set(partitions), found and found.offset))
            await consumer._inner.commit({partition: 9})

    other = shell(group_id=topic, **PROTOCOLS[protocol])
    consumer = shell(group_id=topic, **PROTOCOLS[protocol])
    consumer.subscribe([topic], listener=Diary())
    read(consumer, 20)
    held = set(consumer.assignment)
    consumer.unsubscribe()
    consumer.unsubscribe()
    assert consumer.assignment == consumer.subscription == frozenset()
    if shell.kind == "aio":
        consumer.close()
    assert seen == [(held, 20)]
    assert committed(shell(group_id=topic), partition) == 9
    other.subscribe([topic])
    wait_until(lambda: are_shared(other), other)


def test_closing_waits_for_commits(broker: EmbeddedBroker, shell: Shell, topic: str) -> None:
    consumer = shell(group_id=topic, enable_auto_commit=False)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    outcomes = Outcomes()
    broker.faults.delay(ApiKey.OFFSET_COMMIT, 100)
    consumer.commit_async({partition: 5}, outcomes)
    consumer.close()
    assert outcomes.errors == [None]
    assert committed(shell(group_id=topic), partition) == 5


def test_closing_takes_no_longer_than_it_may(
    broker: EmbeddedBroker, shell: Shell, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = shell(group_id=topic, **QUICK)
    consumer.subscribe([topic])
    read(consumer, 20)
    for api in (ApiKey.OFFSET_COMMIT, ApiKey.LEAVE_GROUP):
        broker.faults.drop(api, times=None)
    start_s = time.monotonic()
    consumer.close(timeout=1)
    assert time.monotonic() - start_s > 0.9
    assert "the time for closing is over" in caplog.text


# Code that is not ours


def test_what_callbacks_and_interceptors_raise_changes_nothing(
    shell: Shell, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    called = []

    def fail(offsets: Mapping[TopicPartition, OffsetAndMetadata], error: ClientError | None) -> None:
        called.append(error)
        raise RuntimeError("callback")

    seen = Interceptor()
    consumer = shell(group_id=topic, enable_auto_commit=False, interceptors=[Failing(), seen])
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    assert [record.value for record in read(consumer, 20)] == VALUES
    consumer.commit_async({partition: 5}, fail)
    wait_until(lambda: called == [None], consumer)
    consumer.commit({partition: 6})
    assert committed(consumer, partition) == 6
    assert len(seen.commits) == 2
    told = {
        str(record.exc_info[1])
        for record in lines_of(caplog, "ottla.client.aio.consumer")
        if record.exc_info is not None
    }
    assert told == {"on_consume", "on_commit", "callback"}
    write(shell.bootstrap, topic, [b"more"])
    assert [record.value for record in read(consumer, 1)] == [b"more"]


def test_an_interceptor_that_forgets_to_return_the_records_loses_none(
    shell: Shell, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = shell(interceptors=[Forgetful()])
    consumer.assign([(topic, 0)])
    assert [record.value for record in read(consumer, 20)] == VALUES
    assert "the records pass it by" in caplog.text
