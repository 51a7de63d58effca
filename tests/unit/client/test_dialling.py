"""How brokers are dialled: how long each try may take, the pauses between them, and what is logged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.client.aio import cluster_link
from ottla.client.aio.cluster_link import ClusterLink
from ottla.client.core.consumer.options import ConsumerSettings
from ottla.client.core.metadata import BrokerAddress, MetadataCache
from ottla.client.core.outages import Outages
from ottla.client.errors import ClusterUnreachableError
from ottla.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from tests.log_lines import lines_of
from tests.unit.client.loop_time import now_s, run

E = ErrorCode


class Connection:
    """Whether it can be made is up to the test: failures by address, which are used up; the last is for ever."""

    refusals: ClassVar[dict[str, list[KafkaError | None]]]
    negotiation: ClassVar[list[KafkaError | None]]
    answers: ClassVar[list[Any]]
    takes_s: ClassVar[float]
    dialled: ClassVar[list[tuple[float, str]]]
    timeouts_ms: ClassVar[list[int]]
    made: ClassVar[list[Connection]]

    def __init__(self, host: str, options: dict[str, Any]) -> None:
        self.host = host
        self.options = options
        self.is_closed = False
        self.in_flight = 0
        self.on_late: Callable[[KafkaError], None] | None = None
        self.negotiated_with_ms: int | None = None
        self.asked: list[tuple[object, int, int]] = []
        self.made.append(self)

    @classmethod
    async def connect(cls, host: str, port: int, *, connect_timeout_ms: int, **options: Any) -> Connection:
        cls.dialled.append((now_s(), f"{host}:{port}"))
        cls.timeouts_ms.append(connect_timeout_ms)
        await asyncio.sleep(cls.takes_s)
        refusals = cls.refusals.get(host, [None])
        refusal = refusals.pop(0) if len(refusals) > 1 else refusals[0]
        if refusal is not None:
            raise refusal
        return cls(host, {"port": port, **options})

    async def negotiate(self, *, timeout_ms: int) -> None:
        self.negotiated_with_ms = timeout_ms
        await asyncio.sleep(0)
        if self.negotiation and (failure := self.negotiation.pop(0)) is not None:
            raise failure

    def version_for(self, kind: object) -> int:
        return 12 if kind is MetadataRequest else 3

    async def request(self, message: object, response_class: type[Any], *, version: int, timeout_ms: int) -> Any:
        self.asked.append((message, version, timeout_ms))
        answer = self.answers.pop(0) if self.answers else response_class()
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture(autouse=True)
def connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_link, "Connection", Connection)
    fresh: dict[str, Any] = {
        "refusals": {},
        "negotiation": [],
        "answers": [],
        "takes_s": 0.0,
        "dialled": [],
        "timeouts_ms": [],
        "made": [],
    }
    for name, value in fresh.items():
        monkeypatch.setattr(Connection, name, value, raising=False)


def linked(servers: Any = "a:1", outages: Any = None, **settings: Any) -> ClusterLink:
    given = ConsumerSettings.parse({"bootstrap.servers": servers, **settings}).client
    return ClusterLink(given, MetadataCache(), default_client_id="somebody", outages=outages)


def refused(code: ErrorCode = E.NETWORK_EXCEPTION, words: str = "refused") -> KafkaError:
    return KafkaError(f"connection to a:1: {words}", code=code)


async def fails_to_connect(link: ClusterLink, host: str = "a") -> KafkaError:
    with pytest.raises(KafkaError) as failure:
        await link._connection(host, 1)
    return failure.value


# One connection


@pytest.mark.parametrize(
    ("settings", "options", "connect_ms", "answer_ms"),
    [
        (
            {},
            {"client_id": "somebody", "idle_ms": 540_000, "send_buffer_bytes": -1, "receive_buffer_bytes": -1},
            10_000,
            30_000,
        ),
        (
            {
                "client.id": "me",
                "connections.max.idle.ms": 5,
                "send.buffer.bytes": 6,
                "receive.buffer.bytes": 7,
                "socket.connection.setup.timeout.ms": 8,
                "request.timeout.ms": 9,
            },
            {"client_id": "me", "idle_ms": 5, "send_buffer_bytes": 6, "receive_buffer_bytes": 7},
            8,
            9,
        ),
    ],
)
def test_a_connection_is_what_the_settings_say(
    settings: dict[str, Any], options: dict[str, Any], connect_ms: int, answer_ms: int
) -> None:
    async def scenario() -> None:
        link = linked(**settings)
        connection: Any = await link._connection("a", 1)
        assert connection.options == {"port": 1, **options}
        assert Connection.timeouts_ms == [connect_ms] and connection.negotiated_with_ms == answer_ms
        assert await link._connection("a", 1) is connection
        connection.close()
        again: Any = await link._connection("a", 1)
        assert again is Connection.made[1] is not connection

    run(scenario)


def test_many_who_need_a_connection_share_it() -> None:
    async def scenario() -> None:
        Connection.takes_s = 1.0
        link = linked()
        found = await asyncio.gather(*(link._connection("a", 1) for _ in range(5)))
        assert len(set(map(id, found))) == len(Connection.dialled) == 1
        await asyncio.gather(link._connection("a", 2), link._connection("b", 1))
        assert now_s() == 2.0, "others need not wait for it"

    run(scenario)


@pytest.mark.parametrize(
    ("settings", "timeouts_ms"),
    [
        ({}, [10_000, 20_000, 30_000, 30_000]),
        ({"socket.connection.setup.timeout.ms": 40_000}, [40_000] * 4),
        (
            {"socket.connection.setup.timeout.ms": 1000, "socket.connection.setup.timeout.max.ms": 3500},
            [1000, 2000, 3500, 3500],
        ),
    ],
)
def test_each_try_may_take_longer_than_the_last(settings: dict[str, Any], timeouts_ms: list[int]) -> None:
    async def scenario() -> None:
        Connection.refusals["a"] = [refused()]
        link = linked(**settings)
        for _ in timeouts_ms:
            await fails_to_connect(link)
        assert Connection.timeouts_ms == timeouts_ms

    run(scenario)


@pytest.mark.parametrize(
    ("settings", "times_s"),
    [
        ({}, [0, 0.05, 0.15, 0.35, 0.75, 1.55, 2.55, 3.55]),
        ({"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 30}, [0, 0.01, 0.03, 0.06, 0.09]),
    ],
)
def test_pauses_between_tries_grow_until_one_succeeds(settings: dict[str, Any], times_s: list[float]) -> None:
    async def scenario() -> None:
        Connection.refusals["a"] = [*[refused()] * (len(times_s) - 1), None, refused()]
        link = linked(**settings)
        for _ in times_s[1:]:
            await fails_to_connect(link)
        (await link._connection("a", 1)).close()
        assert [at_s for at_s, _ in Connection.dialled] == pytest.approx(times_s)
        await asyncio.sleep(100)
        await fails_to_connect(link)
        assert now_s() == pytest.approx(times_s[-1] + 100), "who has not been tried for long is tried at once"
        await fails_to_connect(link)
        assert now_s() == pytest.approx(times_s[-1] + 100 + times_s[1]), "the row of failures had ended"
        assert [line.failures for line in link._lines.values()] == [2]

    run(scenario)


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_connection_nobody_can_use_is_closed(is_closed: bool) -> None:
    async def scenario() -> None:
        link = linked()
        if is_closed:
            dialling = asyncio.ensure_future(link._connection("a", 1))
            await asyncio.sleep(0)
            link.close()
            assert (await dialling).is_closed
            with pytest.raises(KafkaError, match="the client is closed") as failure:
                await link._connection("a", 1)
            assert failure.value.code is E.NETWORK_EXCEPTION
        else:
            Connection.negotiation = [refused(E.UNSUPPORTED_VERSION, "too old")]
            assert (await fails_to_connect(link)).code is E.UNSUPPORTED_VERSION
            assert [connection.is_closed for connection in Connection.made] == [True]
            assert [line.was_reached for line in link._lines.values()] == [True]

    run(scenario)


# What is logged


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(line.levelname, line.getMessage()) for line in lines_of(caplog, cluster_link.__name__)]


def test_an_outage_is_told_of_at_its_beginning_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        Connection.refusals["a"] = [refused(), refused(E.REQUEST_TIMED_OUT, "no answer"), None]
        link = linked()
        await fails_to_connect(link)
        assert link.outages.causes() == "a:1: refused"
        await asyncio.sleep(5)
        await fails_to_connect(link)
        await asyncio.sleep(5)
        await link._connection("a", 1)
        assert link.outages.causes() == ""

    with caplog.at_level(logging.INFO, cluster_link.__name__):
        run(scenario)
    assert told(caplog) == [
        ("WARNING", "somebody cannot reach a:1: refused. Trying again"),
        ("WARNING", "somebody still cannot reach a:1: no answer. Trying again, for 5 s now"),
        ("INFO", "somebody has reached a:1, after 10 s"),
    ]


def test_an_answer_that_does_not_come_in_time_counts_as_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        link = linked(**{"client.id": "me"})
        connection: Any = await link._connection("a", 1)
        connection.on_late(refused(E.REQUEST_TIMED_OUT, "no answer"))
        connection.on_late(refused(E.CORRUPT_MESSAGE, "nonsense"))

    run(scenario)
    assert told(caplog) == [("WARNING", "me cannot reach a:1: no answer. Trying again")]


@pytest.mark.parametrize("why", ["another error", "closed", "fails fast"])
def test_what_is_no_outage_is_not_told_of(why: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        outages = Outages("shared")
        link = linked(outages=outages, **{"bootstrap.fail.fast": why == "fails fast"})
        assert link.outages is outages
        Connection.refusals["a"] = [refused(E.UNSUPPORTED_VERSION if why == "another error" else E.NETWORK_EXCEPTION)]
        if why == "fails fast":
            with pytest.raises(ClusterUnreachableError):
                await link.find_cluster(0)
        elif why == "closed":
            dialling = asyncio.ensure_future(link._connection("a", 1))
            await asyncio.sleep(0)
            link.close()
            await asyncio.wait([dialling])
            assert dialling.exception() is not None
        else:
            await fails_to_connect(link)
        assert outages.causes() == ""

    run(scenario)
    assert told(caplog) == []


# The cluster


def brokers(*hosts: str) -> list[MetadataResponseBroker]:
    return [MetadataResponseBroker(node_id=number, host=host, port=1) for number, host in enumerate(hosts, 1)]


def test_who_does_not_need_the_cluster_yet_waits_three_seconds_for_it(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        Connection.takes_s = 60.0
        await linked(**{"client.id": "me"}).find_cluster(0)
        assert now_s() == 3.0
        Connection.takes_s = 2.5
        link = linked()
        Connection.answers = [MetadataResponse(brokers=brokers("a"))]
        await link.find_cluster(0)
        assert now_s() == 5.5 and list(link.metadata.brokers) == [1]

    with caplog.at_level(logging.DEBUG, cluster_link.__name__):
        run(scenario)
    assert told(caplog) == [("DEBUG", "me starts without a broker: ")]


def test_who_fails_fast_does_so_after_five_tries_with_pauses() -> None:
    async def scenario() -> None:
        Connection.negotiation = [refused(words="it broke") for _ in range(9)]
        link = linked(**{"bootstrap.fail.fast": True, "request.timeout.ms": 40_000})
        with pytest.raises(ClusterUnreachableError) as failure:
            await link.find_cluster(0)
        assert failure.value.summary == "cannot reach a:1: it broke"
        assert [at_s for at_s, _ in Connection.dialled] == pytest.approx([0, 0.05, 0.15, 0.35, 0.75])
        assert [connection.negotiated_with_ms for connection in Connection.made] == [10_000] * 5
        Connection.negotiation.clear()
        await link.find_cluster(0)
        assert Connection.made[-1].asked[0][2] == 10_000, "nor is an answer waited for longer"
        assert link._answer_timeout_ms == 40_000, "only while it looks for the cluster"

    run(scenario)


@pytest.mark.parametrize(
    ("picks_up", "tries"),
    [([False], 1), ([True, False], 2), ([True, True, True, True, True, True], 5)],
)
def test_trying_goes_on_only_while_somebody_picks_up(picks_up: list[bool], tries: int) -> None:
    async def scenario() -> None:
        reset = refused(words="reset")
        reset.__cause__ = ConnectionResetError()
        Connection.refusals["a"] = [reset if does else refused() for does in picks_up]
        link = linked(**{"bootstrap.fail.fast": True})
        with pytest.raises(ClusterUnreachableError):
            await link.find_cluster(0)
        assert len(Connection.dialled) == tries

    run(scenario)


def test_any_broker_means_each_in_turn_and_every_reason_is_told() -> None:
    async def scenario() -> None:
        Connection.refusals = {"a": [refused()], "c": [KafkaError("connection to c:1: gone", code=E.REQUEST_TIMED_OUT)]}
        link = linked("b:1, a:1, c:1")
        link.metadata.brokers = {1: BrokerAddress(1, "c", 1), 2: BrokerAddress(2, "b", 1)}
        Connection.answers = [KafkaError("connection to b:1: late", code=E.REQUEST_TIMED_OUT)]
        with pytest.raises(ClusterUnreachableError) as failure:
            await link.ask_metadata([])
        assert failure.value.summary == "cannot reach c:1: gone; b:1: late; a:1: refused"
        assert link._lines["b", 1].was_reached is False, "who picks up and is silent does not count"
        Connection.answers = [KafkaError("not you", code=E.CLUSTER_AUTHORIZATION_FAILED)]
        with pytest.raises(KafkaError, match="not you"):
            await link.ask_metadata([])
        assert link._lines["b", 1].was_reached is False
        Connection.answers = [MetadataResponse(error_code=E.UNKNOWN_SERVER_ERROR)]
        with pytest.raises(KafkaError) as answered:
            await link.ask_metadata([])
        assert answered.value.code is E.UNKNOWN_SERVER_ERROR

    run(scenario)


@pytest.mark.parametrize(
    ("topics", "creates", "expected"),
    [
        (None, False, MetadataRequest(topics=None, allow_auto_topic_creation=False)),
        ([], True, MetadataRequest(topics=[], allow_auto_topic_creation=True)),
        (
            ["t", "u"],
            False,
            MetadataRequest(
                topics=[MetadataRequestTopic(name="t"), MetadataRequestTopic(name="u")],
                allow_auto_topic_creation=False,
            ),
        ),
    ],
)
def test_metadata_are_asked_for_and_kept(topics: list[str] | None, creates: bool, expected: MetadataRequest) -> None:
    async def scenario() -> None:
        link = linked()
        gone = MetadataResponse(brokers=brokers("a"), topics=[MetadataResponseTopic(name="gone")])
        Connection.answers = [gone, MetadataResponse(brokers=brokers("a", "b"))]
        await link.refresh_metadata(["gone"], 0)
        await link.refresh_metadata(topics, 0, create_missing=creates)
        assert Connection.made[0].asked[1] == (expected, 12, 30_000)
        assert list(link.metadata.brokers) == [1, 2]
        assert list(link.metadata.topics) == ([] if topics is None else ["gone"]), "only who asks about all sees that"

    run(scenario)


@pytest.mark.parametrize(("max_version", "version"), [(None, 3), (2, 2), (3, 3), (4, 3)])
def test_a_request_has_a_version_that_both_allow(max_version: int | None, version: int) -> None:
    async def scenario() -> None:
        link = linked(**{"request.timeout.ms": 1234})
        link.metadata.brokers = {7: BrokerAddress(7, "g", 5)}
        message = HeartbeatRequest(group_id="g")
        await link.request(7, message, HeartbeatResponse, max_version=max_version)
        (connection,) = Connection.made
        assert connection.asked == [(message, version, 1234)]
        assert Connection.dialled == [(0.0, "g:5")]
        with pytest.raises(KafkaError) as unknown:
            await link.request(8, message, HeartbeatResponse)
        assert (unknown.value.message, unknown.value.code) == ("broker 8 is not known", E.NETWORK_EXCEPTION)

    run(scenario)
