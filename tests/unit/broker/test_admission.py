"""Nobody gets past admission, by no way; what it remembers is void as soon as the rules or the quotas change."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from ottla.base.acls import AclPermission
from ottla.base.errors import ErrorCode, ProtocolError
from ottla.base.types import FileSlice
from ottla.broker.admission import ANONYMOUS, AccessRules, Admission
from ottla.broker.authorizer import AllowAll, Operation, ResourceType
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.dispatch import Dispatch
from ottla.broker.handlers import client_handlers
from ottla.broker.node import Broker
from ottla.broker.quotas import ClientQuotas, QuotaEntity, QuotaLimits
from ottla.broker.startup import Surroundings, start_broker
from ottla.broker.straight_fetch import StraightFetch
from ottla.broker.straight_produce import StraightProduce
from ottla.broker.table_authorizer import Rule, TableAuthorizer
from ottla.machines.cluster.topics import NewTopic
from ottla.net.service import Deferred
from ottla.records.builder import NewRecord, build_batch
from ottla.wire.api_keys import ApiKey
from ottla.wire.apis import request_class, response_class
from ottla.wire.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.wire.header import encode_request_frame, read_request_header, read_response_header, request_header_bytes
from ottla.wire.message import Request
from tests.unit.broker.local_connection import connected

TOPIC = "events"
CLIENT = "tester"
ME = QuotaEntity("ANONYMOUS", CLIENT)
TOPIC_RULE = Rule(AclPermission.ALLOW, Operation.ALL, ResourceType.TOPIC)


@dataclass
class Running:
    broker: Broker
    dispatch: Dispatch
    authorizer: TableAuthorizer
    loop: asyncio.AbstractEventLoop

    def handle(self, connection: Any, request: Request, version: int) -> Any:
        async def run() -> Any:
            outcome = self.dispatch.handle(connection, frame_of(request, version))
            self.dispatch.settle()
            if isinstance(outcome, Deferred):
                outcome.abandon()
            return outcome

        return self.loop.run_until_complete(run())

    def ask(self, connection: Any, request: Request, version: int) -> Any:
        pieces = self.handle(connection, request, version)
        data = b"".join(
            piece if isinstance(piece, bytes) else _file_bytes(piece)
            for piece in (pieces.pieces if isinstance(pieces, Deferred) else pieces)
        )[4:]
        _, position = read_response_header(data, request.API_KEY, version)
        return response_class(request.API_KEY).decode(data, version, position)[0]


def _file_bytes(piece: FileSlice) -> bytes:
    return os.pread(piece.file.fd, piece.length, piece.position)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    loop = asyncio.new_event_loop()
    authorizer = TableAuthorizer([TOPIC_RULE])

    async def start() -> Broker:
        settings = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(tmp_path_factory.mktemp("broker") / "data"),
        }
        broker = await start_broker(BrokerConfig(settings), Surroundings(access=AccessRules(authorizer)))
        await broker.topic_admin.create(NewTopic(TOPIC, 1, 1))
        return broker

    broker = loop.run_until_complete(start())
    yield Running(broker, Dispatch(broker, broker.handlers), authorizer, loop)
    loop.run_until_complete(broker.stop())
    loop.close()


@pytest.fixture(autouse=True)
def _as_before(running: Running) -> Iterator[None]:
    yield
    running.authorizer.replace([TOPIC_RULE])
    running.broker.quotas.replace(QuotaLimits())


def frame_of(request: Request, version: int, client_id: str | None = CLIENT) -> memoryview:
    return memoryview(bytearray(encode_request_frame(request, version, 77, client_id)[4:]))


def produced(value: bytes = b"v") -> ProduceRequest:
    records = build_batch([NewRecord(None, value, (), 1_700_000_000_000)])
    partition = PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=TOPIC, partition_data=[partition])]
    )


def fetched(broker: Broker, offset: int = 0) -> FetchRequest:
    topic_id = broker.replicas.led(TOPIC, 0).topic_id
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)
    return FetchRequest(
        max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=TOPIC, topic_id=topic_id, partitions=[partition])]
    )


def produce_error(response: Any) -> int:
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses[0].error_code


def fetch_error(response: Any) -> int:
    assert isinstance(response, FetchResponse)
    return response.responses[0].partitions[0].error_code


# Before authentication


@pytest.mark.parametrize("api_key", [key for key in sorted(client_handlers()) if key != ApiKey.API_VERSIONS])
def test_before_authentication_no_api_is_served(running: Running, api_key: int) -> None:
    handler = running.broker.handlers[api_key]
    connection = connected(running.broker)
    connection.state = stranger()
    for version in range(handler.min_version, handler.max_version + 1):
        header = request_header_bytes(
            2 if version in request_class(api_key).FLEXIBLE_VERSIONS else 1, api_key, version, 77, CLIENT
        )
        # What is asked does not matter, so an empty body will do.
        with pytest.raises(ProtocolError, match="before authentication"):
            running.dispatch.handle(connection, memoryview(bytearray(header + bytes(64))))


@pytest.mark.parametrize("version", [7, 9, 11])
def test_before_authentication_the_short_ways_are_closed(running: Running, version: int) -> None:
    broker = running.broker
    end_offset = broker.replicas.led(TOPIC, 0).log.log_end_offset
    connection = connected(broker)
    running.ask(connection, produced(), version)
    produce, fetch = StraightProduce(broker), StraightFetch(broker)
    produce_frame, fetch_frame = frame_of(produced(), version), frame_of(fetched(broker), 12)
    _, _, _, _, produce_body = read_request_header(produce_frame)
    _, _, _, _, fetch_body = read_request_header(fetch_frame)
    assert fetch.reply(connection, 12, 77, fetch_frame, fetch_body) is not None
    connection.state = stranger()
    assert produce.stage(connection, version, 77, produce_frame, produce_body) is None
    assert fetch.reply(connection, 12, 77, fetch_frame, fetch_body) is None
    for request, asked in ((produced(), version), (fetched(broker), 12)):
        with pytest.raises(ProtocolError, match="before authentication"):
            running.handle(connection, request, asked)
    assert broker.replicas.led(TOPIC, 0).log.log_end_offset == end_offset + 1


def test_before_authentication_the_versions_can_be_asked_for(running: Running) -> None:
    connection = connected(running.broker)
    connection.state = stranger()
    reply = running.ask(connection, request_class(ApiKey.API_VERSIONS)(), 0)
    assert reply.error_code == 0


def test_who_has_authenticated_is_let_in(running: Running) -> None:
    connection = connected(running.broker)
    connection.state = stranger(running.authorizer)
    assert not connection.state.may_write(TOPIC)
    connection.state.authenticated("User:somebody")
    assert produce_error(running.ask(connection, produced(), 9)) == 0


def test_a_listener_that_is_not_plain_lets_nobody_in_without_a_name(running: Running) -> None:
    assert connected(running.broker).state.principal == ANONYMOUS
    assert connected(running.broker, listener="OTHER").state.principal is None


def stranger(authorizer: Any = None) -> Admission:
    quotas = ClientQuotas(QuotaLimits(), samples=2, window_ms=1000)
    return Admission(authorizer or AllowAll(), quotas, listener="SASL", peer_host="127.0.0.1", principal=None)


# Rules that change


def test_decisions_are_void_when_the_rules_change(running: Running) -> None:
    connection = connected(running.broker)
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for _ in range(2):
        assert produce_error(running.ask(connection, produced(), 9)) == 0
        assert fetch_error(running.ask(connection, fetched(running.broker), 12)) == 0
        running.authorizer.replace([TOPIC_RULE, Rule(AclPermission.DENY, Operation.WRITE, ResourceType.TOPIC, TOPIC)])
        assert produce_error(running.ask(connection, produced(), 9)) == refused
        assert fetch_error(running.ask(connection, fetched(running.broker), 12)) == 0
        running.authorizer.replace([TOPIC_RULE, Rule(AclPermission.DENY, Operation.READ, ResourceType.TOPIC, TOPIC)])
        assert produce_error(running.ask(connection, produced(), 9)) == 0
        assert fetch_error(running.ask(connection, fetched(running.broker), 12)) == refused
        running.authorizer.replace([TOPIC_RULE])


class Counting(AllowAll):
    def __init__(self) -> None:
        self.asked = 0

    def allows(self, *_: Any) -> bool:
        self.asked += 1
        return True


def test_an_authorizer_is_asked_once_per_resource_and_operation() -> None:
    authorizer = Counting()
    quotas = ClientQuotas(QuotaLimits(), samples=2, window_ms=1000)
    admission = Admission(authorizer, quotas, listener="L", peer_host="h", principal=ANONYMOUS)
    for _ in range(5):
        assert admission.may_write("a")
        assert admission.may(Operation.WRITE, ResourceType.TOPIC, "a")
        assert admission.may_read("a")
        assert admission.may_read_group("a")
        assert admission.may(Operation.READ, ResourceType.GROUP, "a")
    assert authorizer.asked == 3


def test_topics_that_a_peer_invents_do_not_pile_up() -> None:
    authorizer = Counting()
    quotas = ClientQuotas(QuotaLimits(), samples=2, window_ms=1000)
    admission = Admission(authorizer, quotas, listener="L", peer_host="h", principal=ANONYMOUS)
    for number in range(10_001):
        admission.may_write(f"t{number}")
    assert admission.may_write("t0")
    assert authorizer.asked == 10_002, "the first had been forgotten"


# The short ways stay open


def test_with_rules_and_quotas_the_short_ways_are_taken(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {ME: 1e12}
    running.broker.quotas.replace(QuotaLimits(producers=limits, consumers=limits))
    connection = connected(running.broker)
    # The first request of its kind in a process goes the long way.
    running.ask(connection, produced(), 9)
    running.ask(connection, fetched(running.broker), 12)

    def long_way(*_: Any) -> Any:
        raise AssertionError("the long way was taken")

    monkeypatch.setattr(running.dispatch, "find", long_way)
    assert produce_error(running.ask(connection, produced(), 9)) == 0
    assert fetch_error(running.ask(connection, fetched(running.broker), 12)) == 0
    assert connection.mutes_ms == []


# Quotas


@pytest.mark.parametrize("version", [6, 9, 11])
def test_a_producer_over_its_quota_is_told_to_wait_and_not_read(running: Running, version: int) -> None:
    """Version 6 takes the long way, the others the short one; the bytes and the wait are the same."""
    running.broker.quotas.replace(QuotaLimits(producers={ME: 10.0}))
    connection = connected(running.broker)
    request = produced(b"v" * 1000)
    reply = running.ask(connection, request, version)
    size = len(frame_of(request, version))
    assert produce_error(reply) == 0, "the records are stored all the same"
    assert reply.throttle_time_ms == round(size / 10 * 1000 - 10_000)
    assert connection.mutes_ms == [reply.throttle_time_ms]
    other = connected(running.broker)
    assert running.ask(other, produced(b""), version).throttle_time_ms > reply.throttle_time_ms, "it is shared"


def test_somebody_else_is_not_concerned(running: Running) -> None:
    running.broker.quotas.replace(QuotaLimits(producers={QuotaEntity("ANONYMOUS", "other"): 1.0}))
    connection = connected(running.broker)
    assert running.ask(connection, produced(b"v" * 1000), 9).throttle_time_ms == 0
    assert connection.mutes_ms == []


def test_a_consumer_over_its_quota_gets_nothing_but_the_time_to_wait(running: Running) -> None:
    broker = running.broker
    connection = connected(broker)
    start = broker.replicas.led(TOPIC, 0).log.log_end_offset
    running.ask(connection, produced(b"v" * 2000), 9)
    broker.quotas.replace(QuotaLimits(consumers={ME: 250.0}))
    first = running.ask(connection, fetched(broker, start), 12)
    assert first.throttle_time_ms == 0
    assert fetch_error(first) == 0
    second = running.ask(connection, fetched(broker, start), 12)
    assert second.responses == []
    assert second.throttle_time_ms > 0
    assert connection.mutes_ms == [second.throttle_time_ms]
    # What was not sent is not counted: the third has to wait no longer than the second.
    third = running.ask(connection, fetched(broker, start), 12)
    assert third.throttle_time_ms <= second.throttle_time_ms


def test_a_session_goes_on_after_a_wait(running: Running) -> None:
    broker = running.broker
    connection = connected(broker)
    start = broker.replicas.led(TOPIC, 0).log.log_end_offset
    running.ask(connection, produced(b"v" * 2000), 9)
    request = fetched(broker, start)
    request.session_epoch = 0
    session_id = running.ask(connection, request, 12).session_id
    assert session_id
    broker.quotas.replace(QuotaLimits(consumers={ME: 250.0}))
    request.session_id = session_id
    for epoch in (1, 2):
        request.session_epoch = epoch
        reply = running.ask(connection, request, 12)
        assert (reply.error_code, reply.session_id) == (0, session_id)
    assert reply.throttle_time_ms > 0
    assert reply.responses == []
    broker.quotas.replace(QuotaLimits())
    request.session_epoch = 3
    again = running.ask(connection, request, 12)
    assert (again.error_code, again.throttle_time_ms) == (0, 0)
    assert len(again.responses[0].partitions[0].records) > 2000


def test_a_session_that_could_not_begin_is_not_kept(running: Running) -> None:
    broker = running.broker
    connection = connected(broker)
    start = broker.replicas.led(TOPIC, 0).log.log_end_offset
    running.ask(connection, produced(b"v" * 2000), 9)
    broker.quotas.replace(QuotaLimits(consumers={ME: 250.0}))
    running.ask(connection, fetched(broker, start), 12)
    before = len(broker.fetch_sessions)
    request = fetched(broker, start)
    request.session_epoch = 0
    reply = running.ask(connection, request, 12)
    assert reply.throttle_time_ms > 0
    assert reply.session_id == 0
    assert len(broker.fetch_sessions) == before


def test_another_principal_is_judged_anew() -> None:
    """Whatever was allowed, refused or counted before it was known who asks."""
    topic, group = ResourceType.TOPIC, ResourceType.GROUP
    rules = [
        Rule(AclPermission.ALLOW, Operation.ALL, kind, principal=principal)
        for kind, principal in ((topic, "User:ann"), (group, "User:ben"))
    ]
    limits = QuotaLimits(producers={QuotaEntity("ann"): 1.0, QuotaEntity("ben"): 2.0})
    quotas = ClientQuotas(limits, samples=2, window_ms=1000)
    admission = Admission(TableAuthorizer(rules), quotas, listener="L", peer_host="h", principal=None)
    frame = frame_of(FetchRequest(), 12)
    position = read_request_header(frame)[-1]

    def allowed() -> tuple[bool, ...]:
        return (
            admission.may_write("t"),
            admission.may_read("t"),
            admission.may_read_group("g"),
            admission.may(Operation.DELETE, topic, "t"),
            admission.may(Operation.DELETE, group, "g"),
            admission.may_any(Operation.READ, topic),
        )

    assert not any(allowed())
    for principal, expected, user in (
        ("User:ann", (True, True, False, True, False, True), "ann"),
        ("User:ben", (False, False, True, False, True, False), "ben"),
        ("User:ann", (True, True, False, True, False, True), "ann"),
    ):
        admission.last_commit = "something"
        admission.authenticated(principal)
        assert (admission.principal, admission.last_commit) == (principal, None)
        assert allowed() == expected
        assert allowed() == expected, "as it is remembered"
        rates = quotas.rates_of(f"User:{user}", CLIENT, 0)
        assert admission.rates_in(frame, position, 0) == admission.rates(CLIENT, 0) == rates
        assert rates.producer is not None


def test_where_nobody_has_to_be_known_everybody_is_anonymous_to_quotas() -> None:
    quotas = ClientQuotas(QuotaLimits(consumers={ME: 5.0}), samples=2, window_ms=1000)
    admission = Admission(AllowAll(), quotas, listener="L", peer_host="h", principal=None)
    assert admission.rates(CLIENT, 0).consumer is not None
    assert admission.rates(None, 0).consumer is None
