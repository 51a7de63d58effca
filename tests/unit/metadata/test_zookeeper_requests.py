"""Requests to ZooKeeper without one: how many are under way, which are sent again, and which fail with what."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import AuthFailedError, ConnectionLoss, NoNodeError, SessionExpiredError
from kazoo.protocol.serialization import GetChildren, GetData, multiheader_struct, stat_struct
from kazoo.protocol.states import EventType, WatchedEvent

from ottla.metadata.store import StoreUnreachableError
from ottla.metadata.zookeeper.multi_read import MultiRead
from ottla.metadata.zookeeper.requests import Requests, describe
from ottla.metadata.zookeeper.watches import Watches, _WatchedTree
from tests.waiting import run_async, until

WHY = "ZooKeeper cannot be reached"
OVER = "the session with ZooKeeper is over"
CLOSED = "the session with ZooKeeper was closed"


class Result:
    """What kazoo returns for a request, until the test answers it."""

    def __init__(self) -> None:
        self.exception: BaseException | None = None
        self.value: object = None
        self._linked: Callable[[Any], None] | None = None

    def rawlink(self, callback: Callable[[Any], None]) -> None:
        self._linked = callback

    def answer(self, value: object = None, problem: BaseException | None = None) -> None:
        self.value, self.exception = value, problem
        assert self._linked is not None
        self._linked(self)


class Link:
    def __init__(self, *, max_in_flight: int = 2, patience_ms: int = 600_000) -> None:
        self.is_live = True
        self.sent: list[tuple[str, Result]] = []
        self.answers: dict[str, asyncio.Future[Any]] = {}
        self.requests = Requests(
            asyncio.get_running_loop(),
            max_in_flight=max_in_flight,
            patience_ms=patience_ms,
            is_live=lambda: self.is_live,
            say_why=lambda: WHY,
        )

    def ask(self, *names: str) -> None:
        """Names that begin with `w` are writes."""
        for name in names:
            ask = self.requests.write if name.startswith("w") else self.requests.read
            self.answers[name] = ask(lambda name=name: self._send(name))  # type: ignore[misc]

    def _send(self, name: str) -> Result:
        self.sent.append((name, Result()))
        return self.sent[-1][1]

    def answer(self, name: str, value: object = None, problem: BaseException | None = None) -> None:
        """To the last time it was sent."""
        [result for sent, result in self.sent if sent == name][-1].answer(value, problem)

    @property
    def names_sent(self) -> list[str]:
        return [name for name, _ in self.sent]

    def outcome(self, name: str) -> object:
        """Its value, the words or the exception it has failed with, or None while it is under way."""
        answer = self.answers[name]
        if not answer.done():
            return None
        problem = answer.exception()
        return problem.message if isinstance(problem, StoreUnreachableError) else problem or answer.result()


def with_link(scenario: Callable[[Link], Any], **options: int) -> None:
    async def run() -> None:
        outcome = scenario(Link(**options))
        if outcome is not None:
            await outcome

    run_async(run())


def test_so_many_are_under_way_at_once_and_in_order() -> None:
    def scenario(link: Link) -> None:
        link.ask("a", "b", "c")
        assert link.names_sent == []
        link.requests.connected()
        assert link.names_sent == ["a", "b"]
        link.answer("b", 2)
        assert link.names_sent == ["a", "b", "c"]
        link.ask("d")
        link.answer("a", 1)
        assert link.names_sent == ["a", "b", "c", "d"]
        assert [link.outcome(name) for name in "abcd"] == [1, 2, None, None]

    with_link(scenario)


def test_who_has_stopped_waiting_costs_nothing() -> None:
    def scenario(link: Link) -> None:
        link.ask("a", "b", "c")
        link.answers["a"].cancel()
        link.requests.connected()
        assert link.names_sent == ["b", "c"]
        link.answers["b"].cancel()
        link.answer("b", 2)
        link.answer("c", 3)
        assert link.outcome("c") == 3

    with_link(scenario)


@pytest.mark.parametrize("loss", [ConnectionLoss(), SessionExpiredError()])
def test_reads_are_sent_again_and_writes_are_not(loss: Exception) -> None:
    def scenario(link: Link) -> None:
        link.requests.connected()
        link.ask("a", "w", "c")
        link.answer("a", problem=loss)
        assert link.names_sent == ["a", "w", "a"], "before those that came later"
        link.answer("w", problem=loss)
        assert [link.outcome(name) for name in "awc"] == [None, WHY, None]
        assert link.names_sent == ["a", "w", "a", "c"]

    with_link(scenario)


def test_nothing_is_sent_from_the_first_sign_of_a_loss_on() -> None:
    def scenario(link: Link) -> None:
        link.requests.connected()
        link.ask("a", "b")
        link.is_live = False
        link.answer("a", problem=ConnectionLoss())
        link.ask("c")
        assert link.names_sent == ["a", "b"]
        link.requests.connected()
        assert link.names_sent == ["a", "b", "a"]

    with_link(scenario)


def test_what_the_server_answers_is_told_as_it_is_and_all_else_as_words() -> None:
    def scenario(link: Link) -> None:
        link.requests.connected()
        link.ask("a", "b")
        missing = NoNodeError()
        link.answer("a", problem=missing)
        link.answer("b", problem=ValueError("what is this"))
        assert link.outcome("a") is missing
        assert link.outcome("b") == "ZooKeeper: what is this"

    with_link(scenario)


def test_patience_ends() -> None:
    async def scenario(link: Link) -> None:
        link.requests.connected()
        link.ask("a")
        link.requests.disconnected()
        link.requests.disconnected()
        link.ask("b")
        assert [link.outcome(name) for name in "ab"] == [None, None]
        await until(lambda: link.outcome("b") is not None)
        link.ask("c", "w")
        assert [link.outcome(name) for name in "abcw"] == [WHY] * 4, "new ones at once"
        link.requests.disconnected()
        link.requests.connected()
        link.ask("d")
        assert link.names_sent == ["a", "d"], "and not for ever"

    with_link(scenario, patience_ms=1)


def test_a_connection_that_comes_in_time_ends_the_wait() -> None:
    async def scenario(link: Link) -> None:
        link.requests.disconnected()
        link.ask("a")
        link.requests.connected()
        link.ask("b")
        await asyncio.sleep(0.005)
        assert [link.outcome(name) for name in "ab"] == [None, None]
        link.requests.disconnected()
        await until(lambda: link.outcome("a") == link.outcome("b") == WHY)

    with_link(scenario, patience_ms=1)


def test_a_read_that_has_failed_is_not_sent_again() -> None:
    async def scenario(link: Link) -> None:
        link.requests.connected()
        link.ask("a")
        link.requests.refused()
        link.answer("a", problem=ConnectionLoss())
        link.requests.connected()
        assert (link.names_sent, link.outcome("a")) == (["a"], WHY)

    with_link(scenario)


def test_who_is_refused_does_not_wait() -> None:
    async def scenario(link: Link) -> None:
        link.requests.disconnected()
        link.ask("a")
        link.requests.refused()
        link.ask("b")
        assert [link.outcome(name) for name in "ab"] == [WHY, WHY]

    with_link(scenario)


def test_a_new_session_does_not_write_for_the_old_one() -> None:
    def scenario(link: Link) -> None:
        link.requests.connected()
        link.ask("w1", "a", "w2", "b")
        link.requests.session_lost()
        assert [link.outcome(name) for name in ("w1", "a", "w2", "b")] == [OVER, None, OVER, None]
        link.answer("w1", problem=SessionExpiredError())
        assert link.names_sent == ["w1", "a", "b"]

    with_link(scenario)


def test_the_end_fails_everything() -> None:
    def scenario(link: Link) -> None:
        link.requests.connected()
        link.ask("w1", "a", "w2", "b")
        link.answers["b"].cancel()
        link.requests.close()
        assert [link.outcome(name) for name in ("w1", "a", "w2")] == [CLOSED] * 3
        link.ask("c")
        assert link.outcome("c") == WHY
        assert link.names_sent == ["w1", "a"]

    with_link(scenario)


@pytest.mark.parametrize(("problem", "words"), [(NoNodeError(), "NoNodeError"), (OSError("gone"), "gone")])
def test_a_problem_without_words_is_called_by_its_name(problem: Exception, words: str) -> None:
    assert describe(problem) == words


# Many reads in one


def _string(text: bytes) -> bytes:
    return struct.pack(">i", len(text)) + text


def test_many_reads_are_one_request() -> None:
    request = MultiRead([GetData("/a", None), GetChildren("/b", None)])
    end = struct.pack(">i?i", -1, True, -1)
    assert (
        request.serialize()
        == b"".join(
            [struct.pack(">i?i", kind, False, -1) + _string(path) + b"\0" for kind, path in ((4, b"/a"), (8, b"/b"))]
        )
        + end
    )


def test_an_answer_has_data_names_and_errors() -> None:
    stat = tuple(range(1, 12))
    answer = b"before" + b"".join(
        [
            multiheader_struct.pack(4, False, 0) + _string(b"data") + stat_struct.pack(*stat),
            multiheader_struct.pack(-1, False, -101) + struct.pack(">i", -101),
            multiheader_struct.pack(8, False, 0) + struct.pack(">i", 2) + _string(b"x") + _string(b"yy"),
            multiheader_struct.pack(8, False, 0) + struct.pack(">i", 0),
            multiheader_struct.pack(-1, True, -1),
        ]
    )
    data, missing, names, none = MultiRead.deserialize(answer, len(b"before"))
    assert (data[0], tuple(data[1])) == (b"data", stat)
    assert isinstance(missing, NoNodeError)
    assert (names, none) == (["x", "yy"], [])


# A watched tree


class Tree:
    """Nodes by path with their last change; a look sees them at once, and a watch fires when the test says so."""

    def __init__(self, depth: int | None = None, since_id: int = 10) -> None:
        self.nodes: dict[str, int] = {}
        self.told: list[str] = []
        self.looks: list[tuple[str, bool, bool]] = []
        self._watches: dict[str, Any] = {}
        self.tree = _WatchedTree("/r", depth, since_id, self._look, self.told.append)

    def _look(self, path: str, is_root: bool, has_levels: bool, fired: Any, seen: Any) -> None:
        self.looks.append((path, is_root, has_levels))
        self._watches[path] = fired
        below = sorted(p.rsplit("/", 1)[1] for p in self.nodes if p.rsplit("/", 1)[0] == path)
        seen(self.nodes.get(path), below if has_levels else [])

    def fire(self, path: str, kind: str = EventType.CHANGED) -> None:
        self._watches[path](WatchedEvent(kind, "CONNECTED", path))

    def news(self) -> list[str]:
        told = self.told[:]
        self.told.clear()
        return told


@pytest.mark.parametrize(
    ("depth", "looked_at"),
    [
        (None, [("/r", True, True), ("/r/a", False, True), ("/r/a/b", False, True)]),
        (0, [("/r", True, False)]),
        (1, [("/r", True, True), ("/r/a", False, False)]),
        (2, [("/r", True, True), ("/r/a", False, True), ("/r/a/b", False, False)]),
    ],
)
def test_a_tree_is_watched_down_to_its_depth(depth: int | None, looked_at: list[tuple[str, bool, bool]]) -> None:
    tree = Tree(depth)
    tree.nodes = {"/r": 1, "/r/a": 2, "/r/a/b": 3}
    tree.tree.look("/r")
    assert tree.looks == looked_at


def test_what_was_before_is_not_told_and_every_change_is() -> None:
    tree = Tree(since_id=10)
    tree.nodes = {"/r": 10, "/r/a": 11, "/r/b": 9}
    tree.tree.look("/r")
    assert tree.news() == ["/r/a"]
    tree.fire("/r/a")
    assert tree.news() == [], "nothing is new"
    tree.nodes["/r/a"] = 12
    tree.fire("/r/a")
    tree.nodes["/r/c"] = 13
    tree.fire("/r", EventType.CHILD)
    del tree.nodes["/r/b"]
    tree.fire("/r/b", EventType.DELETED)
    assert tree.news() == ["/r/a", "/r/c", "/r/b"]
    tree.fire("/r/b", EventType.DELETED)
    assert tree.news() == []


def test_a_node_that_has_come_and_gone_is_told_once() -> None:
    tree = Tree()
    tree.tree.look("/r")
    tree.fire("/r", EventType.CHANGED)
    assert tree.news() == []
    tree.fire("/r", EventType.CREATED)
    assert tree.news() == ["/r"]
    tree.nodes["/r"] = 20
    tree.fire("/r", EventType.CREATED)
    assert tree.news() == ["/r"]
    del tree.nodes["/r"]
    tree.fire("/r", EventType.CREATED)
    assert tree.news() == ["/r"]


def test_a_new_connection_looks_at_everything_and_events_of_the_session_at_nothing() -> None:
    tree = Tree()
    tree.nodes = {"/r": 1, "/r/a": 2}
    tree.tree.look("/r")
    tree.looks.clear()
    tree.fire("/r", EventType.NONE)
    assert tree.looks == []
    tree.nodes = {"/r": 1, "/r/b": 20}
    tree.tree.look_at_all()
    assert sorted(tree.news()) == ["/r/a", "/r/b"]
    tree.tree.is_ended = True
    tree.nodes["/r"] = 30
    tree.looks.clear()
    tree.fire("/r")
    assert (tree.looks, tree.news()) == ([], [])
    tree.tree.look("/r")
    assert tree.news() == []


# Watches on a client


class Client:
    """Kazoo's, with nodes that the test sets: each by path with its last change."""

    last_zxid = 10

    def __init__(self) -> None:
        self.nodes: dict[str, int] = {}
        self.problem: Exception | None = None
        self.asked: list[tuple[str, str]] = []
        self._watches: dict[str, Callable[[WatchedEvent], None]] = {}

    def exists_async(self, path: str, watch: Any) -> Result:
        return self._answer("exists", path, watch, lambda stat: stat)

    def get_async(self, path: str, watch: Any) -> Result:
        return self._answer("get", path, watch, lambda stat: (b"data", stat) if stat else NoNodeError())

    def get_children_async(self, path: str, watch: Any) -> Result:
        below = [name.rsplit("/", 1)[1] for name in self.nodes if name.rsplit("/", 1)[0] == path]
        return self._answer("children", path, watch, lambda stat: below[::-1] if stat else NoNodeError())

    def _answer(self, kind: str, path: str, watch: Any, value: Callable[[Any], object]) -> Result:
        self.asked.append((kind, path))
        self._watches[path] = watch
        result = Result()
        found = value(SimpleNamespace(mzxid=self.nodes[path]) if path in self.nodes else None)
        problem = self.problem or (found if isinstance(found, Exception) else None)
        asyncio.get_running_loop().call_soon(lambda: result.answer(found, problem))
        return result

    def fire(self, path: str, kind: str = EventType.CHANGED) -> None:
        self._watches[path](WatchedEvent(kind, "CONNECTED", path))


def with_watches(scenario: Callable[[Client, Watches], Any], chroot: str = "/c") -> None:
    async def run() -> None:
        client, link = Client(), Link()
        link.requests.connected()
        await scenario(client, Watches(client, link.requests, chroot))

    run_async(run())


def test_a_look_goes_below_the_root_of_the_cluster_and_tells_without_it() -> None:
    async def scenario(client: Client, watches: Watches) -> None:
        client.nodes = {"/c/r": 9, "/c/r/a": 9, "/c/r/b": 12}
        told: list[str] = []
        watches.add("/r", told.append, 1)
        await watches.settled()
        assert client.asked == [("exists", "/c/r"), ("children", "/c/r"), ("get", "/c/r/a"), ("get", "/c/r/b")]
        assert told == ["/r/b"]
        del client.nodes["/c/r/a"]
        client.fire("/c/r/a", EventType.DELETED)
        await watches.settled()
        client.nodes["/c/r"] = 13
        client.fire("/c/r")
        await watches.settled()
        assert told == ["/r/b", "/r/a", "/r"]

    with_watches(scenario)


def test_a_path_is_watched_until_the_last_watcher_ends() -> None:
    async def scenario(client: Client, watches: Watches) -> None:
        client.nodes = {"/c/r": 9}
        one: list[str] = []
        other: list[str] = []
        end_one, end_other = watches.add("/r", one.append, 0), watches.add("/r", other.append, 0)
        assert len(client.asked) == 1, "one watch is enough for both"
        await watches.settled()
        for zxid, end in ((11, end_one), (12, end_one), (13, end_other)):
            client.nodes["/c/r"] = zxid
            client.fire("/c/r")
            await watches.settled()
            end()
        client.nodes["/c/r"] = 14
        client.fire("/c/r")
        await watches.settled()
        assert (one, other) == (["/r"], ["/r"] * 3)
        watches.add("/r", one.append, 0)
        watches.end_all()
        await watches.settled()
        asked = len(client.asked)
        client.fire("/c/r")
        assert len(client.asked) == asked

    with_watches(scenario)


def test_on_a_new_connection_everybody_looks_again() -> None:
    async def scenario(client: Client, watches: Watches) -> None:
        told: list[str] = []
        watches.add("/r", told.append, 0)
        await watches.settled()
        client.asked.clear()
        watches.set_again()
        assert told == ["/r"] and client.asked == [("exists", "/c/r")]
        await watches.settled()

    with_watches(scenario)


@pytest.mark.parametrize(
    ("problem", "words"), [(AuthFailedError(), "/r cannot be watched: AuthFailedError"), (OSError("away"), None)]
)
def test_a_path_that_cannot_be_watched_is_named_unless_there_is_no_connection(
    caplog: pytest.LogCaptureFixture, problem: Exception, words: str | None
) -> None:
    async def scenario(client: Client, watches: Watches) -> None:
        client.problem = problem
        told: list[str] = []
        watches.add("/r", told.append)
        await watches.settled()
        assert told == []

    with_watches(scenario, "")
    assert [record.getMessage() for record in caplog.records] == ([] if words is None else [words])
