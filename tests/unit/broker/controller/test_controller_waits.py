"""Whoever waits for the controller: for brokers to follow, for topics to go, for a role that ends meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.controller import controller as queue
from ottla.broker.controller import stored_state
from ottla.broker.controller.claim import Won, claim, holder
from ottla.machines.cluster.controller import ElectionAsked, ElectionKind
from ottla.machines.cluster.topics import DeletionWanted, NewTopic
from ottla.metadata import paths
from ottla.metadata.store import Create, Delete, Node
from ottla.wire.apis.leader_and_isr import LeaderAndIsrRequest
from tests.log_lines import messages_of
from tests.unit.broker.controller.cluster import Cluster, run, until


async def code_of(waiting: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        await waiting
    return ErrorCode(refused.value.code)


def test_brokers_that_do_not_answer_are_waited_for_only_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(cluster: Cluster) -> None:
        fresh = cluster.controller(1)
        await fresh.delivered([1, 2, 3])
        controller = await cluster.elected(1)
        cluster.link.held[2] = asyncio.Event()
        await cluster.admin(controller).create(NewTopic("t", -1, -1, {0: [1]}))
        monkeypatch.setattr(queue, "WAIT_MS", 1)
        await controller.delivered([1, 3, 9])
        assert await code_of(controller.delivered([2])) is ErrorCode.REQUEST_TIMED_OUT
        cluster.link.held.pop(2).set()
        monkeypatch.setattr(queue, "WAIT_MS", 300_000)
        await controller.delivered([2])

    assert queue.WAIT_MS == 300_000
    run(tmp_path, scenario)


@pytest.mark.parametrize("end", ["it goes", "it takes too long", "another controller"])
def test_a_topic_that_is_to_go_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        controller = await cluster.elected(1)
        for name in ("t", "u"):
            await cluster.admin(controller).create(NewTopic(name, -1, -1, {0: [1, 2]}))
        await controller.deleted("t")
        await controller.deleted("none")
        cluster.link.held[2] = asyncio.Event()
        await controller.submit(DeletionWanted("t"))
        await controller.submit(DeletionWanted("u"))
        if end == "it takes too long":
            monkeypatch.setattr(queue, "WAIT_MS", 1)
            assert await code_of(controller.deleted("t")) is ErrorCode.REQUEST_TIMED_OUT
            return
        both = [asyncio.ensure_future(controller.deleted("t")) for _ in range(2)]
        await asyncio.sleep(0)
        assert not any(waiting.done() for waiting in both)
        if end == "it goes":
            cluster.link.held.pop(2).set()
            await asyncio.gather(*both)
            assert "t" not in controller.state.topics and "t" not in controller.state.pending_deletions
        else:
            controller.resign()
            assert [await code_of(waiting) for waiting in both] == [ErrorCode.NOT_CONTROLLER] * 2

    run(tmp_path, scenario)


def test_who_asks_while_the_controller_ends_is_told(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        controller = await cluster.elected(1)
        begun, never = asyncio.Event(), asyncio.Event()

        async def hang() -> None:
            begun.set()
            await never.wait()

        cluster.store.before_commit.append(hang)
        topic = NewTopic("t", -1, -1, {0: [1]})
        first = asyncio.ensure_future(cluster.admin(controller).create(topic))
        await begun.wait()
        second = asyncio.ensure_future(controller.submit(ElectionAsked((), ElectionKind.ANEW)))
        await asyncio.sleep(0)
        await controller.stop()
        assert [await code_of(each) for each in (first, second)] == [ErrorCode.NOT_CONTROLLER] * 2
        assert not controller.is_active

    run(tmp_path, scenario)


def test_brokers_with_failed_directories_are_given_their_roles_again(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        controller = await cluster.elected(1)
        await cluster.admin(controller).create(NewTopic("t", -1, -1, {0: [1, 2], 1: [3, 1]}))
        cluster.link.sent.clear()
        for number, broker_id in enumerate((2, 9)):
            event = f"{paths.LOG_DIR_EVENTS}/log_dir_event_{number:010}"
            await cluster.store.behind_its_back(Create(event, paths.encode_log_dir_event(broker_id)))
        await until(lambda: any(isinstance(request, LeaderAndIsrRequest) for _, request in cluster.link.sent))
        await cluster.settle(controller)
        told = cluster.link.take(LeaderAndIsrRequest)
        assert {broker_id for broker_id, _ in told} == {2}
        for _, request in told:
            roles = [(t.topic_name, s.partition_index) for t in request.topic_states for s in t.partition_states]
            assert roles == [("t", 0)]
        assert await cluster.store.children(paths.LOG_DIR_EVENTS) == []

    run(tmp_path, scenario)


def test_who_cannot_read_the_state_watches_nothing_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(store: object) -> None:
        raise KafkaError("nothing to read", code=ErrorCode.UNKNOWN_SERVER_ERROR)

    async def scenario(cluster: Cluster) -> None:
        controller = cluster.controller(1)
        watched: list[str] = []
        real = cluster.store.watch

        def watch(path: str, watcher: Any, *, depth: int | None = None) -> Any:
            end = real(path, watcher, depth=depth)
            watched.append(path)

            def end_both() -> None:
                watched.remove(path)
                end()

            return end_both

        monkeypatch.setattr(cluster.store, "watch", watch)
        with monkeypatch.context() as patched:
            patched.setattr(stored_state, "load", fails)
            with pytest.raises(KafkaError, match="nothing to read"):
                await controller.campaign()
        assert watched == [] and not controller.is_active
        await cluster.store.behind_its_back(Delete(paths.CONTROLLER))
        assert await controller.campaign()
        assert sorted(watched) == [paths.BROKER_IDS, paths.LOG_DIR_EVENTS]
        controller.resign()
        assert watched == []

    run(tmp_path, scenario)


@pytest.mark.parametrize("is_there", [False, True])
def test_the_first_epoch_of_a_cluster_is_1(tmp_path: Path, is_there: bool) -> None:
    async def scenario(cluster: Cluster) -> None:
        if is_there:
            await cluster.store.behind_its_back(Create(paths.CONTROLLER_EPOCH, b"0"))

        async def rival() -> None:
            if not is_there:
                await cluster.store.behind_its_back(Create(paths.CONTROLLER_EPOCH, b"0"))

        store: Any = cluster.store
        store.before_commit.append(rival)
        won = await claim(store, 7, 1234, is_owner=False)
        assert won == Won(1, 1)
        node = await cluster.store.get(paths.CONTROLLER)
        assert node is not None and holder(node) == 7 and node.owner == cluster.store.session_id
        epoch = await cluster.store.get(paths.CONTROLLER_EPOCH)
        assert epoch is not None and (epoch.data, epoch.version) == (b"1", 1)
        assert await claim(store, 8, 1234, is_owner=False) is None, "it is taken"
        assert await claim(store, 7, 1234, is_owner=True) == Won(2, 2)

    run(tmp_path, scenario)


def test_a_holder_that_cannot_be_understood_is_somebody_else(caplog: pytest.LogCaptureFixture) -> None:
    assert holder(Node(b"nonsense", 0, 0, 0)) == -1
    (line,) = messages_of(caplog, "ottla.broker.controller.claim")
    assert line.startswith("/controller cannot be understood, and is taken for another broker's: ")
