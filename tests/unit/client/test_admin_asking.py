"""How an admin client asks: how often, how long, whom, and what it says then. Its brokers are played by the test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import EncodeError, ErrorCode, KafkaError
from ottla.base.types import NIL_UUID, TopicPartition
from ottla.client.aio.admin.caller import AdminCaller, unanswered
from ottla.client.core.admin.options import AdminSettings
from ottla.client.core.admin.outcomes import Call, Outcomes, admin_error
from ottla.client.core.metadata import BrokerAddress, PartitionLeader, TopicMetadata
from ottla.client.errors import ClientClosedError, ClientError
from ottla.wire.apis.list_groups import ListGroupsRequest, ListGroupsResponse
from tests.unit.client import loop_time
from tests.unit.client.loop_time import now_s

AWAY = KafkaError("away", code=ErrorCode.NETWORK_EXCEPTION)
LOADING = admin_error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
REFUSED = admin_error(ErrorCode.INVALID_REQUEST, "no")
BROKERS = {node: BrokerAddress(node, f"h{node}", 9092) for node in (1, 2)}
TOO_LARGE, TOO_NEW = "too large for any version", "too new for this broker"


def _build(keys: Sequence[Any], version: int) -> ListGroupsRequest:
    if TOO_LARGE in keys or (TOO_NEW in keys and version < 4):
        raise EncodeError("it does not fit")
    return ListGroupsRequest(states_filter=[str(key) for key in keys])


def call(answers: dict[Any, Any], *, name: str = "a_call", max_version: int | None = None) -> Call[Any, Any]:
    """What a reply says of keys, if they were asked about. A reply says them in its groups' place."""

    def read(response: Any) -> Any:
        return {key: answers[key] for key in answers if str(key) in response.groups}

    return Call(name, ListGroupsRequest, ListGroupsResponse, _build, read, max_version)


class Connection:
    def __init__(self, link: Link, node: object) -> None:
        self._link, self._node = link, node

    def version_for(self, request: object) -> int:
        assert request is ListGroupsRequest
        return self._link.version

    async def request(self, message: Any, response_class: object, *, version: int, timeout_ms: int) -> Any:
        assert response_class is ListGroupsResponse and timeout_ms == 30_000
        return await self._link.exchange(self._node, message, version)


class Link:
    def __init__(self, metadata: Any) -> None:
        self.metadata = metadata
        self.version = 4
        self.asked: list[tuple[object, int, list[str]]] = []
        self.refreshed: list[list[str]] = []
        self.refusals: list[KafkaError | None] = []
        """What refreshing metadata comes to, for as long as there are any."""
        self.failures: list[KafkaError | None] = []
        """What requests come to, in the same way."""
        self.learns: dict[int, BrokerAddress] | None = None
        self.coordinators: dict[tuple[str, int], int] = {}
        self.outages = SimpleNamespace(causes=lambda: "")
        self.closed = 0

    async def refresh_metadata(self, topics: list[str], now_ms: int) -> None:
        self.refreshed.append(topics)
        if self.refusals and (refusal := self.refusals.pop(0)) is not None:
            raise refusal
        if self.learns is not None:
            self.metadata.brokers = self.learns

    async def exchange(self, node: object, message: Any, version: int) -> Any:
        self.asked.append((node, version, message.states_filter))
        if self.failures and (failure := self.failures.pop(0)) is not None:
            raise failure
        return SimpleNamespace(groups=message.states_filter)

    async def connection_to(self, node: int) -> Connection:
        return Connection(self, node)

    async def request_any(self, make: Callable[[Any], tuple[Any, int]], response_class: object) -> Any:
        assert response_class is ListGroupsResponse
        message, version = make(Connection(self, "any"))
        return await self.exchange("any", message, version)

    async def find_coordinator(self, key: str, kind: int) -> int:
        if (key, kind) not in self.coordinators:
            raise KafkaError("nobody yet", code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self.coordinators[key, kind]

    def close(self) -> None:
        self.closed += 1


class Scene:
    def __init__(self, **settings: Any) -> None:
        self.caller = AdminCaller(AdminSettings.parse({"bootstrap.servers": "x:1", **settings}))
        self.caller.metadata.brokers = dict(BROKERS)
        self.link = Link(self.caller.metadata)
        self.caller.link = self.link  # type: ignore[assignment]


Scenario = Callable[[Scene], Awaitable[None]]


def run(scenario: Scenario, **settings: Any) -> None:
    loop_time.run(lambda: scenario(Scene(**settings)))


def told(outcomes: Outcomes[Any, Any]) -> dict[Any, Any]:
    """Results, and for errors their code and words."""
    errors = {key: (error.code, error.message) for key, error in outcomes.errors.items()}
    return {**outcomes.results, **errors}


# Asking again


class Asked:
    """Answers by turns; the last one for ever."""

    def __init__(self, *turns: dict[str, Any]) -> None:
        self.turns = list(turns)
        self.pending: list[tuple[float, list[str]]] = []

    async def __call__(self, pending: list[str]) -> dict[str, Any]:
        self.pending.append((now_s(), list(pending)))
        return self.turns.pop(0) if len(self.turns) > 1 else self.turns[0]


def test_only_what_may_pass_is_asked_again_after_pauses_that_grow() -> None:
    async def scenario(scene: Scene) -> None:
        asked = Asked(*[{"a": 1, "b": LOADING, "c": REFUSED, "d": LOADING}] * 5, {"b": 2, "d": LOADING}, {"d": 4})
        outcomes = await scene.caller.settle(["a", "b", "b", "c", "d"], asked, "asking", None)
        assert told(outcomes) == {"a": 1, "b": 2, "d": 4, "c": (ErrorCode.INVALID_REQUEST, "no")}
        assert asked.pending == [
            (0.0, ["a", "b", "c", "d"]),
            (0.1, ["b", "d"]),
            (pytest.approx(0.3), ["b", "d"]),
            (pytest.approx(0.7), ["b", "d"]),
            (pytest.approx(1.5), ["b", "d"]),
            (pytest.approx(2.5), ["b", "d"]),
            (pytest.approx(3.5), ["d"]),
        ]
        assert scene.link.refreshed == [[]] * 6, "whoever is asked may be somebody else by then"
        assert outcomes._what == "asking"

    run(scenario)


def test_nothing_is_asked_for_nothing() -> None:
    async def scenario(scene: Scene) -> None:
        asked = Asked({})
        assert told(await scene.caller.settle([], asked, "asking", 0)) == {}
        assert asked.pending == [] and scene.link.refreshed == []

    run(scenario)


@pytest.mark.parametrize(("timeout_ms", "took_s"), [(None, 7.0), (250, 0.25)])
@pytest.mark.parametrize(
    ("last", "outages", "why"),
    [
        (LOADING, "h1:9092: refused", f"; the last error was {LOADING}"),
        (None, "h1:9092: refused", "; cannot reach h1:9092: refused"),
        (None, "", ""),
    ],
)
def test_what_was_not_had_in_time_is_told_with_the_reason(
    timeout_ms: int | None, took_s: float, last: ClientError | None, outages: str, why: str
) -> None:
    async def scenario(scene: Scene) -> None:
        scene.link.outages = SimpleNamespace(causes=lambda: outages)

        async def ask(pending: list[str]) -> dict[str, Any]:
            if last is None:
                await asyncio.Event().wait()
            return {"a": 1, "b": last}

        outcomes = await scene.caller.settle(["a", "b"], ask, "asking", timeout_ms)
        assert now_s() == pytest.approx(took_s)
        error = (ErrorCode.REQUEST_TIMED_OUT, f"there was no success within {took_s * 1000:.0f} ms{why}")
        assert told(outcomes) == {"a": error if last is None else 1, "b": error}

    run(scenario, **{"default.api.timeout.ms": 7000})


def test_pauses_are_those_of_the_settings_and_metadata_that_fail_are_no_end() -> None:
    async def scenario(scene: Scene) -> None:
        scene.link.refusals = [AWAY, AWAY]
        asked = Asked({"a": LOADING}, {"a": LOADING}, {"a": LOADING}, {"a": 1})
        assert told(await scene.caller.settle(["a"], asked, "asking", None)) == {"a": 1}
        assert [at_s for at_s, _ in asked.pending] == pytest.approx([0, 0.02, 0.05, 0.08])

    run(scenario, **{"retry.backoff.ms": 20, "retry.backoff.max.ms": 30})


@pytest.mark.parametrize("grace", [False, True])
def test_a_topic_that_is_not_known_has_some_grace(grace: bool) -> None:
    async def scenario(scene: Scene) -> None:
        unknown = admin_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "what is that?")
        asked = Asked({"a": unknown})
        outcomes = await scene.caller.settle(["a"], asked, "asking", None, grace=grace)
        assert told(outcomes) == {"a": (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "what is that?")}
        assert len(asked.pending) == (4 if grace else 1)

    run(scenario)


def test_a_client_without_brokers_looks_for_some_before_it_asks() -> None:
    async def scenario(scene: Scene) -> None:
        scene.caller.metadata.brokers = {}
        scene.link.refusals = [AWAY, None, KafkaError("not you", code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]
        asked = Asked({"a": 1})
        outcomes = await scene.caller.settle(["a", "b"], asked, "asking", None)
        refusal = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not you")
        assert told(outcomes) == {"a": refusal, "b": refusal} and asked.pending == []
        scene.link.learns = dict(BROKERS)
        assert told(await scene.caller.settle(["a"], asked, "asking", None)) == {"a": 1}
        scene.link.refreshed.clear()
        await scene.caller.settle(["a"], asked, "asking", None)
        assert scene.link.refreshed == []

    run(scenario)


def test_what_the_answer_leaves_out_is_not_asked_again() -> None:
    async def scenario(scene: Scene) -> None:
        asked = Asked({"a": 1, "c": 3})
        words = "b: the broker's answer does not mention it"
        outcomes = await scene.caller.settle(["a", "b"], asked, "asking", None)
        assert told(outcomes) == {"a": 1, "b": (ErrorCode.UNKNOWN_SERVER_ERROR, words)}
        assert len(asked.pending) == 1
        assert unanswered("b").message == words

    run(scenario)


@pytest.mark.parametrize("after_s", [0.05, 0.5])
def test_closing_is_the_end_of_every_call(after_s: float) -> None:
    """In a pause, or while a broker does not answer."""

    async def scenario(scene: Scene) -> None:
        async def ask(pending: list[str]) -> dict[str, Any]:
            if now_s() >= 0.3:
                await asyncio.Event().wait()
            return {"a": LOADING}

        waiting = asyncio.ensure_future(scene.caller.settle(["a"], ask, "asking", 1000))
        await asyncio.sleep(after_s)
        scene.caller.close()
        with pytest.raises(ClientClosedError, match="this admin client is closed; make another one"):
            await waiting
        assert scene.link.closed == 1
        with pytest.raises(ClientClosedError):
            await scene.caller.settle([], ask, "asking", None)
        with pytest.raises(ClientClosedError):
            scene.caller.check_open()

    run(scenario)


def test_brokers_are_learnt_as_any_answer_is() -> None:
    async def scenario(scene: Scene) -> None:
        scene.caller.metadata.brokers = {}
        scene.link.learns = dict(BROKERS)
        scene.link.refusals = [AWAY]
        await scene.caller.learn_brokers(None)
        assert scene.caller.metadata.brokers == BROKERS
        scene.link.refusals = [KafkaError("not you", code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]
        with pytest.raises(ClientError, match="not you") as refused:
            await scene.caller.learn_brokers(None)
        assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        scene.link.refusals = [AWAY] * 100
        with pytest.raises(ClientError, match="no success within 50 ms; the last error was NETWORK_EXCEPTION: away"):
            await scene.caller.learn_brokers(50)

    run(scenario)


# One request


@pytest.mark.parametrize(("spoken", "max_version", "version"), [(4, None, 4), (4, 5, 4), (5, 4, 4), (5, 5, 5)])
def test_a_request_has_the_newest_version_that_both_allow(spoken: int, max_version: int | None, version: int) -> None:
    async def scenario(scene: Scene) -> None:
        scene.link.version = spoken
        asked = call({"a": 1, "b": 2}, max_version=max_version)
        assert await scene.caller.ask_node(2, asked, ["a", "b"]) == {"a": 1, "b": 2}
        assert scene.link.asked == [(2, version, ["a", "b"])]

    run(scenario)


def described(answers: dict[Any, Any]) -> dict[Any, Any]:
    return {key: (a.code, a.message) if isinstance(a, ClientError) else a for key, a in answers.items()}


UNSENDABLE = (ErrorCode.INVALID_REQUEST, f"{TOO_LARGE}: this cannot be sent: it does not fit")
TOO_OLD = (ErrorCode.UNSUPPORTED_VERSION, "the broker is too old for this request: it does not fit")


@pytest.mark.parametrize("whom", ["a node", "anybody", "a coordinator"])
def test_what_cannot_be_sent_spoils_nothing_else(whom: str) -> None:
    async def scenario(scene: Scene) -> None:
        scene.link.coordinators = {("g", 0): 2}
        asked = call({"a": 1, "b": 2, TOO_NEW: 3})

        async def ask(*keys: str) -> dict[Any, Any]:
            if whom == "a node":
                return described(await scene.caller.ask_node(2, asked, list(keys)))
            if whom == "anybody":
                return described(await scene.caller._ask_any(asked, list(keys)))
            return described(await scene.caller.ask_coordinator(0, "g", asked, list(keys)))

        node = "any" if whom == "anybody" else 2
        assert await ask("a", TOO_LARGE, "b") == {"a": 1, "b": 2, TOO_LARGE: UNSENDABLE}
        assert scene.link.asked == [(node, 4, ["a", "b"])]
        assert await ask(TOO_LARGE) == {TOO_LARGE: UNSENDABLE}
        assert len(scene.link.asked) == 1
        scene.link.version = 3
        assert await ask(TOO_NEW, TOO_LARGE) == {TOO_NEW: TOO_OLD, TOO_LARGE: UNSENDABLE}
        assert len(scene.link.asked) == 1
        scene.link.failures = [AWAY, ClientError("as it is", code=ErrorCode.INVALID_CONFIG)]
        away = (ErrorCode.NETWORK_EXCEPTION, "away")
        assert await ask("a", "b", TOO_LARGE) == {"a": away, "b": away, TOO_LARGE: UNSENDABLE}
        assert await ask("a") == {"a": (ErrorCode.INVALID_CONFIG, "as it is")}
        if whom == "a coordinator":
            scene.link.coordinators = {}
            nobody = (ErrorCode.COORDINATOR_NOT_AVAILABLE, "nobody yet")
            assert await ask("a", TOO_LARGE) == {"a": nobody, TOO_LARGE: UNSENDABLE}

    run(scenario)


# Whom to ask


def test_any_broker_is_asked_until_one_knows() -> None:
    async def scenario(scene: Scene) -> None:
        scene.link.failures = [AWAY]
        outcomes = await scene.caller.any_broker(call({"a": 1, "b": REFUSED}), ["a", "b"], None)
        assert told(outcomes) == {"a": 1, "b": (ErrorCode.INVALID_REQUEST, "no")}
        assert scene.link.asked == [("any", 4, ["a", "b"])] * 2
        assert outcomes._what == "a_call"

    run(scenario)


def test_a_cluster_without_a_controller_has_none_to_ask() -> None:
    async def scenario(scene: Scene) -> None:
        outcomes = await scene.caller.controller(call({"a": 1}), ["a"], 50)
        words = "the cluster has no controller at the moment"
        assert told(outcomes) == {
            "a": (
                ErrorCode.REQUEST_TIMED_OUT,
                f"there was no success within 50 ms; the last error was NOT_CONTROLLER: {words}",
            )
        }
        assert scene.link.asked == []
        scene.caller.metadata.controller_id = 2
        assert told(await scene.caller.controller(call({"a": 1}), ["a"], 50)) == {"a": 1}
        assert scene.link.asked == [(2, 4, ["a"])]

    run(scenario)


def no_broker(node: int) -> tuple[ErrorCode, str]:
    return ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {node} is not in the cluster"


def test_brokers_are_asked_about_themselves_and_looked_for_once() -> None:
    def of(node: int) -> Call[int, Any]:
        return call({node: f"of {node}"}, name="about_brokers")

    async def scenario(scene: Scene) -> None:
        link = scene.link
        outcomes = await scene.caller.brokers(of, None, None)
        assert told(outcomes) == {1: "of 1", 2: "of 2"} and outcomes._what == "about_brokers"
        assert sorted(link.asked, key=str) == [(1, 4, ["1"]), (2, 4, ["2"])]
        assert link.refreshed == [[]], "all there are now"
        assert told(await scene.caller.brokers(of, [2], None)) == {2: "of 2"} and link.refreshed == [[]]
        assert told(await scene.caller.brokers(of, [2, 9], None)) == {2: "of 2", 9: no_broker(9)}
        assert link.refreshed == [[], []], "it may have joined since"
        link.refusals = [KafkaError("not you", code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]
        refusal = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not you")
        assert told(await scene.caller.brokers(of, [2, 9], None)) == {2: refusal, 9: refusal}

    run(scenario)


def test_things_go_to_the_brokers_they_belong_to_and_the_others_to_any() -> None:
    made: list[int | None] = []

    def of(node: int | None) -> Call[str, Any]:
        made.append(node)
        return call({key: f"{key} of {node}" for key in "abcdef"}, name="about_things")

    home = {"a": 1, "b": 2, "c": 1, "d": None, "e": 9, "f": None}

    async def scenario(scene: Scene) -> None:
        link = scene.link
        outcomes = await scene.caller.placed(of, home, home.__getitem__, None)
        by_home = {key: f"{key} of {node}" for key, node in home.items()}
        assert told(outcomes) == {**by_home, "e": no_broker(9)} and outcomes._what == "about_things"
        assert sorted(link.asked, key=str) == [("any", 4, ["d", "f"]), (1, 4, ["a", "c"]), (2, 4, ["b"])]
        assert link.refreshed == [[]]
        link.asked.clear()
        assert told(await scene.caller.placed(of, ["a"], home.__getitem__, None)) == {"a": "a of 1"}
        assert link.asked == [(1, 4, ["a"])] and link.refreshed == [[]]
        link.refusals = [KafkaError("not you", code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]
        refusal = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not you")
        assert told(await scene.caller.placed(of, ["d", "e"], home.__getitem__, None)) == {"d": refusal, "e": refusal}

    run(scenario)


def test_partitions_go_to_their_leaders_of_which_the_newest_is_asked_for() -> None:
    first, second, third, large = (TopicPartition(name, 0) for name in ("t", "s", "r", TOO_LARGE))
    lost = TopicPartition("t", 1)

    def topic(name: str, leaders: dict[int, int]) -> TopicMetadata:
        partitions = {number: PartitionLeader(leader, 0) for number, leader in leaders.items()}
        return TopicMetadata(name, NIL_UUID, False, partitions, (), 0)

    def build(keys: Sequence[TopicPartition], version: int) -> ListGroupsRequest:
        if large in keys:
            raise EncodeError("it does not fit")
        return ListGroupsRequest(states_filter=[str(key) for key in keys])

    async def scenario(scene: Scene) -> None:
        link = scene.link
        scene.caller.metadata.topics = {
            "t": topic("t", {0: 1, 1: -1}),
            "s": topic("s", {0: 2}),
            "r": topic("r", {0: 1}),
        }
        asked = call({first: 1, second: 2, third: 3}, name="about_partitions")._replace(build=build)
        wanted: list[Any] = [first, ("s", 0), third, large]
        outcomes = await scene.caller.leaders(asked, wanted, None)
        unsendable = (ErrorCode.INVALID_REQUEST, f"{large}: this cannot be sent: it does not fit")
        assert told(outcomes) == {first: 1, second: 2, third: 3, large: unsendable}
        assert outcomes._what == "about_partitions"
        assert link.refreshed == [["r", "s", "t"]], "each topic once, in order, and none that cannot be sent"
        assert sorted(link.asked, key=str) == [(1, 4, [str(first), str(third)]), (2, 4, [str(second)])]
        link.asked.clear()
        outcomes = await scene.caller.leaders(asked, [lost, first], 250)
        code = ErrorCode.LEADER_NOT_AVAILABLE
        last = admin_error(code, where=lost)
        words = f"there was no success within 250 ms; the last error was {last}"
        assert told(outcomes) == {first: 1, lost: (ErrorCode.REQUEST_TIMED_OUT, words)}
        assert link.asked == [(1, 4, [str(first)])]
        link.refusals = [KafkaError("not you", code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]
        refusal = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not you")
        assert told(await scene.caller.leaders(asked, [first, large], None)) == {first: refusal, large: unsendable}

    run(scenario)


def test_an_unknown_partition_has_some_grace() -> None:
    async def scenario(scene: Scene) -> None:
        nowhere = TopicPartition("nowhere", 0)
        outcomes = await scene.caller.leaders(call({}), [nowhere], None)
        assert outcomes.errors[nowhere].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        # Once for each try, and once in each pause.
        assert scene.link.refreshed == [["nowhere"], [], ["nowhere"], [], ["nowhere"], [], ["nowhere"]]

    run(scenario)


@pytest.mark.parametrize("kind", [0, 1])
def test_coordinators_are_found_for_each_and_asked_about_theirs(kind: int) -> None:
    async def scenario(scene: Scene) -> None:
        link = scene.link
        link.coordinators = {("g", kind): 1, ("h", kind): 2, ("i", kind): 1}
        made: list[str] = []

        def of(coordinated: str) -> Call[str, Any]:
            made.append(coordinated)
            return call({} if coordinated == "i" else {coordinated: coordinated * 2}, name="about_groups")

        outcomes = await scene.caller.coordinators(kind, of, ["g", "h", "i"], None)
        words = "i: the broker's answer does not mention it"
        assert told(outcomes) == {"g": "gg", "h": "hh", "i": (ErrorCode.UNKNOWN_SERVER_ERROR, words)}
        assert outcomes._what == "about_groups"
        assert sorted(link.asked, key=str) == [(1, 4, ["g"]), (1, 4, ["i"]), (2, 4, ["h"])]
        link.asked.clear()
        members = await scene.caller.coordinator(kind, "h", call({"m": 1, "n": REFUSED}), ["m", "n"], None)
        assert told(members) == {"m": 1, "n": (ErrorCode.INVALID_REQUEST, "no")}
        assert link.asked == [(2, 4, ["m", "n"])]
        found = await scene.caller.find_coordinators(kind, ["g", "h", "lost"], 50)
        words = "there was no success within 50 ms; the last error was COORDINATOR_NOT_AVAILABLE: nobody yet"
        assert told(found) == {"g": BROKERS[1], "h": BROKERS[2], "lost": (ErrorCode.REQUEST_TIMED_OUT, words)}
        assert found._what == "find_coordinators"

    run(scenario)
