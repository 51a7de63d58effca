"""ElectLeaders beside a controller that a test plays: what it is asked, and what the asker is told."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, InvalidRequestError, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.handlers import elect_leaders
from ottla.broker.handlers.elect_leaders import respond
from ottla.machines.cluster.controller import ElectionAsked, ElectionKind
from ottla.wire.apis.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from tests.own_thread import patch_own_thread
from tests.waiting import run_async

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class Controller:
    broker_id = 1

    def __init__(self, codes: dict[TopicPartition, ErrorCode]) -> None:
        self.codes = codes
        self.is_active = True
        self.asked: list[ElectionAsked] = []
        self.told: list[set[int]] = []
        self.silence: Exception | None = None
        self.state = SimpleNamespace(
            partitions=lambda: [(tp, None) for tp in (T0, T1, U0)],
            partition=lambda tp: SimpleNamespace(leader=tp.partition + 5) if tp != U0 else None,
        )

    async def submit(self, event: ElectionAsked) -> dict[TopicPartition, ErrorCode]:
        self.asked.append(event)
        return dict(self.codes)

    async def delivered(self, brokers: set[int]) -> None:
        self.told.append(brokers)
        if isinstance(self.silence, TimeoutError):
            await asyncio.Event().wait()
        if self.silence is not None:
            raise self.silence


def ask(
    controller: Any,
    *,
    named: bool = True,
    kind: int = 0,
    version: int = 2,
    may: bool = True,
    timeout_ms: int = 0,
) -> ElectLeadersResponse:
    topics = [TopicPartitions(topic="t", partitions=[0, 1, 0]), TopicPartitions(topic="u", partitions=[0])]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=topics if named else None, timeout_ms=timeout_ms)
    context: Any = SimpleNamespace(may=lambda kind: may, version=version, broker=SimpleNamespace(controller=controller))
    return run_async(respond(context, request))


def codes_of(response: ElectLeadersResponse) -> dict[TopicPartition, ErrorCode]:
    return {
        TopicPartition(topic.topic, result.partition_id): ErrorCode(result.error_code)
        for topic in response.replica_election_results
        for result in topic.partition_result
    }


@pytest.mark.parametrize(("kind", "asked"), [(0, ElectionKind.PREFERRED), (1, ElectionKind.UNCLEAN)])
def test_whoever_names_partitions_hears_of_each_of_them(kind: int, asked: ElectionKind) -> None:
    codes = {T0: ErrorCode.NONE, T1: ErrorCode.ELECTION_NOT_NEEDED, U0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    controller = Controller(codes)
    response = ask(controller, kind=kind, timeout_ms=60_000)
    assert controller.asked == [ElectionAsked((T0, T1, U0), asked)]
    assert codes_of(response) == codes and response.error_code == ErrorCode.NONE
    assert controller.told == [{1, 5}], "the controller itself, and the new leaders"
    words = [result.error_message for topic in response.replica_election_results for result in topic.partition_result]
    assert words == [None, "Leader election not needed for topic partition.", "The partition does not exist."]


def test_whoever_asks_for_all_hears_of_what_was_done() -> None:
    codes = {T0: ErrorCode.NONE, T1: ErrorCode.ELECTION_NOT_NEEDED, U0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    controller = Controller(codes)
    response = ask(controller, named=False, timeout_ms=60_000)
    assert controller.asked == [ElectionAsked((T0, T1, U0), ElectionKind.PREFERRED)]
    assert codes_of(response) == {T0: ErrorCode.NONE, U0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    nobody = Controller({T0: ErrorCode.ELECTION_NOT_NEEDED})
    assert codes_of(ask(nobody, named=False)) == {} and nobody.told == []


@pytest.mark.parametrize("silence", [TimeoutError(), KafkaError(code=ErrorCode.NOT_CONTROLLER)])
def test_leaders_that_do_not_hear_of_it_in_time(silence: Exception) -> None:
    controller = Controller({T0: ErrorCode.NONE, T1: ErrorCode.ELECTION_NOT_NEEDED, U0: ErrorCode.NONE})
    controller.silence = silence
    timed_out = ErrorCode.REQUEST_TIMED_OUT
    assert codes_of(ask(controller)) == {T0: timed_out, T1: ErrorCode.ELECTION_NOT_NEEDED, U0: timed_out}
    assert controller.told == [{1, 5}], "what is gone by now has no leader"


@pytest.mark.parametrize(("version", "has_an_error"), [(0, False), (1, True), (2, True)])
@pytest.mark.parametrize(
    ("may", "is_active", "code"),
    [(False, True, ErrorCode.CLUSTER_AUTHORIZATION_FAILED), (True, False, ErrorCode.NOT_CONTROLLER)],
)
def test_refusals(version: int, has_an_error: bool, may: bool, is_active: bool, code: ErrorCode) -> None:
    controller = Controller({})
    controller.is_active = is_active
    response = ask(controller, version=version, may=may)
    assert response.error_code == (code if has_an_error else ErrorCode.NONE)
    assert codes_of(response) == {T0: code, T1: code, U0: code} and controller.asked == []
    assert codes_of(ask(controller, named=False, may=may)) == {}


def test_there_are_two_kinds_of_elections() -> None:
    with pytest.raises(InvalidRequestError, match="no election of type 2"):
        ask(Controller({}), kind=2)


@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [
        (
            0,
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            "Failed to elect leader for partition t-0 under strategy PreferredReplicaPartitionLeaderElectionStrategy",
        ),
        (
            1,
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            "Failed to elect leader for partition t-0 under strategy OfflinePartitionLeaderElectionStrategy(true)",
        ),
        (0, ErrorCode.NONE, None),
        (0, ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."),
        (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."),
        (0, ErrorCode.INVALID_REQUEST, KafkaError(code=ErrorCode.INVALID_REQUEST).message),
        (0, ErrorCode.NOT_CONTROLLER, KafkaError(code=ErrorCode.NOT_CONTROLLER).message),
        (0, ErrorCode.REQUEST_TIMED_OUT, KafkaError(code=ErrorCode.REQUEST_TIMED_OUT).message),
        (0, ErrorCode.UNKNOWN_SERVER_ERROR, KafkaError(code=ErrorCode.UNKNOWN_SERVER_ERROR).message),
    ],
)
def test_the_words_are_those_that_tools_of_kafka_show(kind: int, code: ErrorCode, words: str | None) -> None:
    found = ask(Controller({T0: code}), kind=kind, timeout_ms=60_000)
    assert [result.error_message for topic in found.replica_election_results for result in topic.partition_result] == [
        words
    ]


@pytest.mark.parametrize(
    ("code", "named", "is_raised"),
    [
        (ErrorCode.NOT_CONTROLLER, True, True),
        (ErrorCode.NOT_CONTROLLER, False, True),
        (ErrorCode.REQUEST_TIMED_OUT, True, False),
        (ErrorCode.UNKNOWN_SERVER_ERROR, True, False),
        (ErrorCode.INVALID_REQUEST, True, False),
    ],
)
def test_what_cannot_be_reached_is_said_beside_each_partition(code: ErrorCode, named: bool, is_raised: bool) -> None:
    class Unreachable(Controller):
        async def submit(self, event: ElectionAsked) -> dict[TopicPartition, ErrorCode]:
            raise KafkaError("nobody there", code=code)

    controller = Unreachable({})
    if is_raised:
        with pytest.raises(KafkaError, match="nobody there"):
            ask(controller, named=named)
        return
    found = ask(controller, named=named)
    assert codes_of(found) == {T0: code, T1: code, U0: code} and found.error_code == ErrorCode.NONE
    words = {result.error_message for topic in found.replica_election_results for result in topic.partition_result}
    assert words == {"nobody there"}


def test_without_partitions_what_cannot_be_reached_is_the_error_of_the_reply() -> None:
    class Unreachable(Controller):
        async def submit(self, event: ElectionAsked) -> dict[TopicPartition, ErrorCode]:
            raise KafkaError(code=ErrorCode.REQUEST_TIMED_OUT)

    controller = Unreachable({})
    controller.state.partitions = list
    with pytest.raises(KafkaError):
        ask(controller, named=False)


@pytest.mark.parametrize(("timeout_ms", "waits_s"), [(-5, 0.001), (0, 0.001), (1, 0.001), (2500, 2.5)])
def test_new_leaders_are_waited_for_as_long_as_the_client_says(
    monkeypatch: pytest.MonkeyPatch, timeout_ms: int, waits_s: float
) -> None:
    waited: list[float] = []

    async def noted(work: Any, timeout: float) -> None:
        waited.append(timeout)
        await work

    patch_own_thread(monkeypatch, elect_leaders.asyncio, "wait_for", noted)
    context: Any = SimpleNamespace(broker=SimpleNamespace(controller=Controller({})))
    assert run_async(elect_leaders._delivered(context, [T0], timeout_ms)) == {}
    assert waited == [waits_s]
