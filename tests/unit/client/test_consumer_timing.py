"""A consumer's engine without a broker: whom it asks again and when, and how long it waits. Hours pass at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.clock import ManualClock
from ottla.base.errors import ErrorCode, KafkaError, OttlaError
from ottla.base.types import NIL_UUID, TopicPartition
from ottla.client.aio.consumer import engine as engine_module
from ottla.client.aio.consumer.engine import ConsumerEngine
from ottla.client.core.consumer.options import ConsumerSettings
from ottla.client.core.metadata import BrokerAddress, PartitionLeader, TopicMetadata
from ottla.client.core.outages import Outages
from ottla.client.errors import ClientClosedError, ClientError, CommitFailedError, UnassignedPartitionError
from tests.log_lines import lines_of
from tests.unit.client.loop_time import now_s, run

E = ErrorCode
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


class Clock(ManualClock):
    """That of the loop."""

    def monotonic_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)


class Planner:
    """Notes what it is told, and plans what a test has given it."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []
        self.plans: list[list[Any]] = []
        self.brokers_in_flight = 0

    def failed(self, call: Any, now_ms: int) -> None:
        self.told.append(("failed", call.node_id, now_ms))

    def answered(self, call: Any, answer: object, now_ms: int) -> None:
        self.told.append(("answered", call.node_id, answer, now_ms))

    def plan(self, now_ms: int) -> list[Any]:
        return self.plans.pop(0) if self.plans else []


class Connection:
    def __init__(self, *, is_writable: bool = True, failure: BaseException | None = None) -> None:
        self.is_writable = is_writable
        self.failure = failure
        self.asked: list[tuple[object, int, int]] = []
        self.tell: list[Callable[[Any], None]] = []

    def version_for(self, kind: type[object]) -> int:
        assert kind is Request
        return 12

    def request_then(
        self, request: object, kind: object, then: Callable[[Any], None], *, version: int, timeout_ms: int
    ) -> None:
        if self.failure is not None:
            raise self.failure
        self.asked.append((request, version, timeout_ms))
        self.tell.append(then)

    async def wait_until_writable(self) -> None:
        await asyncio.sleep(1)


class Request: ...


def fetch(node_id: int = 1, max_version: int = 13) -> Any:
    return SimpleNamespace(node_id=node_id, request=Request(), max_version=max_version)


class Engine(ConsumerEngine):
    def __init__(self, **settings: Any) -> None:
        super().__init__(ConsumerSettings.parse({"bootstrap.servers": "x:1", "group.id": "g", **settings}))
        self.clock = Clock()  # type: ignore[assignment]
        self.plan = Planner()
        self.planner = self.plan  # type: ignore[assignment]
        self.ready: Connection | None = None
        self.connection: Connection | BaseException = Connection()
        self.fetch_link = SimpleNamespace(  # type: ignore[assignment]
            ready_connection=lambda node_id: self.ready, connection_to=self._connect, close=lambda: None
        )
        self._loop = asyncio.get_running_loop()

    async def _connect(self, node_id: int) -> Connection:
        await asyncio.sleep(1)
        if isinstance(self.connection, BaseException):
            raise self.connection
        return self.connection

    @property
    def has_news(self) -> bool:
        return self._news.is_set()

    @property
    def is_awake(self) -> bool:
        return self._wake.is_set()


# Fetching


@pytest.mark.parametrize(
    ("settings", "max_version", "expected"),
    [
        ({}, 13, (12, 30_500)),
        ({"request.timeout.ms": 7000, "fetch.max.wait.ms": 60}, 11, (11, 7060)),
    ],
)
def test_a_fetch_goes_out_at_once_where_that_is_possible(
    settings: dict[str, Any], max_version: int, expected: tuple[int, int]
) -> None:
    async def scenario() -> None:
        engine = Engine(**settings)
        engine.ready = Connection()
        call = fetch(max_version=max_version)
        engine._fetch(call)
        assert engine.ready.asked == [(call.request, *expected)] and not engine._tasks
        for reason in (Connection(is_writable=False), None):
            engine.ready = reason
            engine.connection = Connection()
            begun_s = now_s()
            engine._fetch(call)
            (task,) = engine._tasks
            await task
            assert now_s() == begun_s + 2 and engine.connection.asked == [(call.request, *expected)]
            await asyncio.sleep(0)

    run(scenario)


@pytest.mark.parametrize(
    ("error", "is_failure"),
    [
        (KafkaError("away", code=E.NETWORK_EXCEPTION), False),
        (KafkaError("late", code=E.REQUEST_TIMED_OUT), False),
        (KafkaError("old", code=E.UNSUPPORTED_VERSION), True),
    ],
)
@pytest.mark.parametrize("where", ["dialling", "writing", "answer"])
def test_a_fetch_that_fails_is_planned_again_if_that_may_pass(error: KafkaError, is_failure: bool, where: str) -> None:
    async def scenario() -> None:
        engine = Engine()
        call = fetch(node_id=7)
        at_ms = 0
        if where == "dialling":
            engine.connection = error
            engine._fetch(call)
            await asyncio.gather(*engine._tasks)
            at_ms = 1000
        elif where == "writing":
            engine.ready = Connection(failure=error)
            engine._fetch(call)
        else:
            engine.ready = Connection()
            engine._fetch(call)
            engine.ready.tell[0](error)
        assert engine.plan.told == [("failed", 7, at_ms)]
        assert engine.is_awake is True and engine.has_news is is_failure
        if is_failure:
            assert engine.failure is not None and engine.failure.fatal and engine.failure.message == "old"
        else:
            assert engine.failure is None

    run(scenario)


def test_an_answer_nobody_can_read_ends_the_consumer(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        engine = Engine()
        engine._fetched(fetch(), OttlaError("nonsense"))
        assert engine.plan.told == [("failed", 1, 0)]
        assert engine.failure is not None and engine.failure.fatal
        words = "the consumer met an error it did not expect: OttlaError('nonsense')"
        assert engine.failure.message == words

    run(scenario)
    (line,) = lines_of(caplog, engine_module.__name__)
    assert (line.levelno, line.getMessage()) == (logging.ERROR, "the consumer met an error it did not expect")
    assert line.exc_info is not None and isinstance(line.exc_info[1], OttlaError)


@pytest.mark.parametrize(("following", "is_awake"), [([], True), ([1], False), ([2], True), ([2, 1], False)])
def test_the_next_fetch_follows_an_answer(following: list[int], is_awake: bool) -> None:
    async def scenario() -> None:
        engine = Engine()
        engine.ready = Connection()
        calls = [fetch(node_id) for node_id in following]
        engine.plan.plans = [calls]
        answer: Any = object()
        engine._fetched(fetch(1), answer)
        assert engine.plan.told == [("answered", 1, answer, 0)] and engine.has_news
        assert [request for request, *_ in engine.ready.asked] == [call.request for call in calls]
        assert engine.is_awake is is_awake, "others may have something to do if it has not"

    run(scenario)


def test_what_comes_after_the_end_is_nobodys(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        engine = Engine()
        engine.is_closed = True
        engine._fetched(fetch(), KafkaError("old", code=E.UNSUPPORTED_VERSION))
        assert engine.plan.told == [] and engine.failure is None

    run(scenario)
    assert lines_of(caplog, engine_module.__name__) == []


def test_a_fetch_that_is_broken_off_may_be_asked_for_again() -> None:
    async def scenario() -> None:
        engine = Engine()
        engine._fetch(fetch(3))
        await asyncio.sleep(0.5)
        (task,) = engine._tasks
        task.cancel()
        await asyncio.wait([task])
        assert engine.plan.told == [("failed", 3, 500)] and engine.failure is None
        await asyncio.sleep(0)
        assert not engine._tasks

    run(scenario)


@pytest.mark.parametrize(("in_flight", "brokers", "wakes"), [(0, 1, True), (1, 1, False), (1, 2, True), (2, 2, False)])
def test_room_for_more_is_news_unless_every_broker_is_busy(in_flight: int, brokers: int, wakes: bool) -> None:
    async def scenario() -> None:
        engine = Engine()
        engine.plan.brokers_in_flight = in_flight
        engine.metadata.brokers = {node: BrokerAddress(node, "h", 1) for node in range(brokers)}
        engine.taken()
        assert engine.is_awake is wakes

    run(scenario)


# Rounds


@pytest.mark.parametrize(
    ("not_before_ms", "refreshing", "due_ms", "pause_ms"),
    [
        ([], False, 1500, 500),
        ([1200], False, 1500, 200),
        ([1200, 1100], False, 1500, 100),
        ([1000, 999, 1400], False, 1500, 400),
        ([], False, 1000, 1),
        ([], False, 900, 1),
        ([1200], True, 900, 200),
        ([], True, 900, 60_000),
        ([], False, 90_000, 60_000),
        ([1001], False, 90_000, 1),
    ],
)
def test_how_long_it_rests(not_before_ms: list[int], refreshing: bool, due_ms: int, pause_ms: int) -> None:
    async def scenario() -> None:
        engine = Engine()
        partitions = [TopicPartition("t", number) for number in range(len(not_before_ms))]
        engine.cursors.replace(partitions)
        for partition, at_ms in zip(partitions, not_before_ms, strict=True):
            engine.cursors.of(partition).not_before_ms = at_ms
        engine._refreshing = refreshing
        engine.metadata.next_refresh_ms = lambda: due_ms  # type: ignore[method-assign]
        assert engine._pause_ms(1000) == pause_ms

    run(scenario)


def test_every_topic_that_matters_is_asked_about() -> None:
    async def scenario() -> None:
        engine = Engine()
        engine.cursors.replace([TopicPartition("held", 0)])
        engine.subscription.subscribe(["wanted"])
        engine.group_topics = frozenset({"of others"})
        engine._use_topics(7)
        assert engine.metadata._used_at_ms == {"held": 7, "wanted": 7, "of others": 7}

    run(scenario)


@pytest.mark.parametrize(
    ("leader", "epoch"), [(PartitionLeader(1, 5), 5), (PartitionLeader(9, 5), -1), (PartitionLeader(-1, 5), -1)]
)
def test_a_cursor_hears_of_leaders_that_can_be_reached(leader: PartitionLeader, epoch: int) -> None:
    async def scenario() -> None:
        engine = Engine()
        engine.metadata.brokers = {1: BrokerAddress(1, "h", 1)}
        engine.metadata.topics = {"t": TopicMetadata("t", NIL_UUID, False, {0: leader}, (0,), 0)}
        unknown = TopicPartition("u", 0)
        engine.cursors.replace([FIRST, SECOND, unknown])
        for cursor in engine.cursors.all():
            cursor.seek(0)
        engine._check_leaders()
        taken = [(cursor.topic_partition, cursor.leader_epoch) for cursor in engine.cursors.all()]
        assert sorted(taken) == [(FIRST, epoch), (SECOND, -1), (unknown, -1)]

    run(scenario)


# Trying again


class Attempts:
    def __init__(self, *errors: KafkaError, takes_s: float = 0.0) -> None:
        self.errors = list(errors)
        self.takes_s = takes_s
        self.at_s: list[float] = []

    async def __call__(self) -> str:
        self.at_s.append(now_s())
        await asyncio.sleep(self.takes_s)
        if self.errors:
            raise self.errors.pop(0)
        return "done"


LOADING = KafkaError("loading", code=E.COORDINATOR_LOAD_IN_PROGRESS)


@pytest.mark.parametrize(
    ("settings", "times_s"),
    [
        ({}, [0, 0.1, 0.3, 0.7, 1.5, 2.5, 3.5]),
        ({"retry.backoff.ms": 20, "retry.backoff.max.ms": 50}, [0, 0.02, 0.06, 0.11, 0.16]),
    ],
)
def test_pauses_between_tries_grow(settings: dict[str, Any], times_s: list[float]) -> None:
    async def scenario() -> None:
        engine = Engine(**settings)
        attempts = Attempts(*[LOADING] * (len(times_s) - 1))
        assert await engine.retry(attempts, 60_000) == "done"
        assert attempts.at_s == pytest.approx(times_s)

    run(scenario)


@pytest.mark.parametrize(("timeout_ms", "tries"), [(99, 1), (100, 2), (299, 2), (300, 3), (0, 1)])
def test_nothing_is_tried_that_would_be_too_late(timeout_ms: int, tries: int) -> None:
    async def scenario() -> None:
        engine = Engine()
        attempts = Attempts(*[LOADING] * 9)
        with pytest.raises(ClientError) as failed:
            await engine.retry(attempts, timeout_ms)
        assert (failed.value.code, failed.value.message) == (LOADING.code, "loading")
        assert len(attempts.at_s) == tries

    run(scenario)


@pytest.mark.parametrize(
    ("earlier", "outages", "words"),
    [
        ([], "", "the brokers did not answer within 500 ms"),
        ([], "h:1: refused", "the brokers did not answer within 500 ms; last: h:1: refused"),
        ([LOADING], "h:1: refused", "the brokers did not answer within 500 ms; last: loading"),
    ],
)
def test_who_waits_in_vain_is_told_why(earlier: list[KafkaError], outages: str, words: str) -> None:
    async def scenario() -> None:
        engine = Engine()
        engine.link.outages = SimpleNamespace(causes=lambda: outages)  # type: ignore[assignment]
        errors = [*earlier]

        async def attempt() -> str:
            if errors:
                raise errors.pop(0)
            await asyncio.Event().wait()
            return "never"

        with pytest.raises(ClientError) as failed:
            await engine.retry(attempt, 500)
        assert (failed.value.code, failed.value.message, now_s()) == (E.REQUEST_TIMED_OUT, words, 0.5)

    run(scenario)


@pytest.mark.parametrize(
    ("error", "refreshes"),
    [
        (LOADING, False),
        (KafkaError("moved", code=E.NOT_LEADER_OR_FOLLOWER), True),
        (KafkaError("away", code=E.NETWORK_EXCEPTION), True),
        (KafkaError("late", code=E.REQUEST_TIMED_OUT), True),
    ],
)
def test_what_metadata_may_help_against_has_them_read_again(error: KafkaError, refreshes: bool) -> None:
    async def scenario() -> None:
        engine = Engine()
        engine.metadata._update_wanted = False
        assert await engine.retry(Attempts(error), 1000) == "done"
        assert engine.metadata._update_wanted is refreshes and engine.is_awake is refreshes

    run(scenario)


def test_what_is_final_keeps_its_cause_and_its_kind() -> None:
    async def scenario() -> None:
        engine = Engine()
        lost = CommitFailedError("lost", code=E.NETWORK_EXCEPTION)
        lost.__cause__ = cause = ZeroDivisionError()
        with pytest.raises(CommitFailedError) as failed:
            await engine.retry(Attempts(lost), 1000)
        assert failed.value is lost and failed.value.__cause__ is cause
        with pytest.raises(ClientError) as refused:
            await engine.retry(Attempts(KafkaError("no", code=E.INVALID_REQUEST)), 1000)
        assert (refused.value.code, refused.value.message) == (E.INVALID_REQUEST, "no")

    run(scenario)


def test_closing_is_the_end_of_trying() -> None:
    async def scenario() -> None:
        engine = Engine()
        attempts = Attempts(LOADING, LOADING)
        trying = asyncio.ensure_future(engine.retry(attempts, 60_000))
        await asyncio.sleep(0.05)
        engine.is_closed = True
        with pytest.raises(ClientClosedError, match="this consumer is closed; make another one"):
            await trying
        assert attempts.at_s == [0.0]

    run(scenario)


# Positions


def test_a_position_is_waited_for() -> None:
    async def scenario() -> None:
        engine = Engine()
        engine.cursors.replace([FIRST])
        finding = asyncio.ensure_future(engine.find_position(FIRST, 1000))
        await asyncio.sleep(0.2)
        assert engine.is_awake and not finding.done()
        engine.cursors.of(FIRST).seek(42)
        assert await finding == 42
        assert 0.2 <= now_s() <= 0.21
        with pytest.raises(UnassignedPartitionError):
            await engine.find_position(SECOND, 1000)

    run(scenario)


@pytest.mark.parametrize(("outages", "more"), [("", ""), ("h:1: refused", "; last: cannot reach h:1: refused")])
def test_a_position_that_does_not_come_is_told_with_the_reason(outages: str, more: str) -> None:
    async def scenario() -> None:
        engine = Engine()
        engine.link.outages = SimpleNamespace(causes=lambda: outages)  # type: ignore[assignment]
        engine.cursors.replace([FIRST])
        with pytest.raises(ClientError) as failed:
            await engine.find_position(FIRST, 700)
        assert failed.value.code is E.REQUEST_TIMED_OUT and now_s() == 0.7
        assert failed.value.message == f"the position in t-0 was not found within 700 ms{more}"

    run(scenario)


@pytest.mark.parametrize("how", ["an error of its own", "a failure", "closed"])
def test_a_position_that_cannot_come_is_not_waited_for(how: str) -> None:
    async def scenario() -> None:
        engine = Engine()
        engine.cursors.replace([FIRST])
        finding = asyncio.ensure_future(engine.find_position(FIRST, 60_000))
        await asyncio.sleep(1)
        if how == "an error of its own":
            engine.cursors.of(FIRST).complain(ClientError("its own"))
            engine.fail(KafkaError("of all"))
        elif how == "a failure":
            engine.fail(KafkaError("of all"))
        else:
            engine.is_closed = True
        words = {"an error of its own": "its own", "a failure": "of all", "closed": "this consumer is closed"}[how]
        with pytest.raises(ClientError, match=words):
            await finding
        assert now_s() <= 1.01

    run(scenario)


def test_news_are_waited_for_no_longer_than_allowed() -> None:
    async def scenario() -> None:
        engine = Engine()
        await engine.wait_for_news(2.5)
        assert now_s() == 2.5
        await engine.wait_for_news(-1)
        assert now_s() == 2.5
        engine.notify()
        await engine.wait_for_news(9)
        assert now_s() == 2.5 and not engine.has_news

    run(scenario)


def test_connections_have_one_voice() -> None:
    async def scenario() -> None:
        given = ConsumerSettings.parse({"bootstrap.servers": "x:1"})
        engine = ConsumerEngine(given)
        links = (engine.link, engine.fetch_link, engine.group_link)
        assert len({id(link.outages) for link in links}) == 1 and len({id(link) for link in links}) == 3
        assert {link.client_id for link in links} == {"ottla-consumer"}
        assert all(link.metadata is engine.metadata for link in links)

    run(scenario)


def test_closing_ends_all_tasks_and_all_connections() -> None:
    async def scenario() -> None:
        engine = ConsumerEngine(ConsumerSettings.parse({"bootstrap.servers": "x:1"}))
        engine._loop = asyncio.get_running_loop()
        ended: list[str] = []

        async def hang(name: str) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(1)
                ended.append(name)
                if name == "stubborn":
                    raise ZeroDivisionError

        async def close() -> None:
            await engine.close()
            ended.append("closer")

        for name in ("one", "stubborn"):
            engine.spawn(hang(name))
        closing = engine.spawn(close())
        await closing
        assert sorted(ended[:2]) == ["one", "stubborn"] and ended[2:] == ["closer"], (
            "whoever closes is no task to be waited for"
        )
        assert [link._closed for link in (engine.link, engine.fetch_link, engine.group_link)] == [True] * 3
        assert engine.is_closed and engine._news.is_set()
        await asyncio.sleep(0)
        assert not engine._tasks

    run(scenario)


def test_an_application_may_speak_for_all_connections() -> None:
    async def scenario() -> None:
        engine = ConsumerEngine(ConsumerSettings.parse({"bootstrap.servers": "x:1"}))
        outages = Outages("app")
        engine.share_outages(outages)
        assert engine.link.outages is engine.fetch_link.outages is engine.group_link.outages is outages

    run(scenario)


def test_a_refusal_that_nobody_waits_for_any_more_is_not_told() -> None:
    async def scenario() -> None:
        engine = Engine()
        waiting = [asyncio.ensure_future(engine.refuse(KafkaError(f"no {n}", code=E.INVALID_REQUEST))) for n in (1, 2)]
        await asyncio.sleep(0)
        engine.refusal = ClientError("of a topic")
        told: list[object] = []
        waiting[0].cancel()
        await asyncio.sleep(0)
        for _ in range(3):
            refusal = engine.take_refusal()
            told.append(refusal and refusal.message)
        assert told == ["of a topic", "no 2", None] and not engine.has_refusal
        await waiting[1]

    run(scenario)
