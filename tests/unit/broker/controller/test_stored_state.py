"""The controller's state in the store: what is written is read again, and what cannot be read is set aside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ottla.base.errors import KafkaError
from ottla.base.types import TopicPartition, Uuid
from ottla.broker.controller.stored_state import Writing, load, load_topic, reload_topic, take_log_dir_events, topic_of
from ottla.machines.cluster.state import (
    Change,
    ClusterState,
    MarkForDeletion,
    PartitionState,
    RemoveMark,
    RemoveTopic,
    WritePartition,
    WriteTopic,
)
from ottla.metadata import paths
from ottla.metadata.embedded import EmbeddedStore
from ottla.metadata.store import BadVersionError, Check, Create, Delete, Set
from tests.waiting import run_async

T_ID = Uuid(bytes(15) + b"\x01")
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOPIC = WriteTopic(
    "t", T_ID, {0: (1, 2), 1: (2, 3)}, configs={"retention.ms": "5"}, adding={1: (3,)}, removing={1: (2,)}
)
NEW_PARTITION = WritePartition(T0, 1, 4, (1, 2), -1)
ROOTS = ("/brokers", paths.TOPICS, paths.BROKER_IDS, "/config", paths.CONFIG_TOPICS, "/admin", paths.DELETE_TOPICS)


async def write(store: EmbeddedStore, *changes: Change) -> int:
    """As one controller does; how many operations that took."""
    writing, count = Writing(store, 9), 0
    for change in changes:
        operations = await writing.operations_of(change)
        count += len(operations)
        await store.commit(operations)
    return count


def stored(tmp_path: Path, scenario: Callable[[EmbeddedStore], Awaitable[None]]) -> None:
    async def run() -> None:
        store = await EmbeddedStore.open(tmp_path / "store")
        try:
            for path in (*ROOTS, paths.LOG_DIR_EVENTS):
                if await store.get(path) is None:
                    await store.commit([Create(path)])
            await scenario(store)
        finally:
            await store.close()

    run_async(run())


def test_a_topic_is_read_as_it_was_written(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        assert await load_topic(store, "t") is None
        await write(store, TOPIC, NEW_PARTITION)
        topic = await load_topic(store, "t")
        assert topic is not None and (topic.topic_id, topic.node_version) == (T_ID, 0)
        assert topic.partitions == {
            0: PartitionState((1, 2), leader=1, leader_epoch=4, isr=(1, 2), partition_epoch=0),
            1: PartitionState((2, 3), adding=(3,), removing=(2,)),
        }
        config = await store.get(paths.topic_config("t"))
        assert config is not None and paths.decode_config(config.data) == {"retention.ms": "5"}
        node = await store.get(paths.partition_state(*T0))
        assert node is not None and paths.PartitionStateNode.decode(node.data).controller_epoch == 9
        await write(
            store, WritePartition(T0, 2, 5, (2,), 0), TOPIC._replace(expected_version=0, adding={}, removing={})
        )
        topic = await load_topic(store, "t")
        assert topic is not None and topic.node_version == 1
        assert topic.partitions[0] == PartitionState((1, 2), leader=2, leader_epoch=5, isr=(2,), partition_epoch=1)
        assert topic.partitions[1] == PartitionState((2, 3))

    stored(tmp_path, scenario)


def test_another_controller_goes_on_where_one_has_stopped(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        await store.commit([Create(paths.topic_config("t"), b"left behind")])
        await store.commit([Create(paths.topic("t"), paths.TopicNode(T_ID, {0: [1], 1: [1]}, {}, {}).encode())])
        assert await write(store, NEW_PARTITION) == 3, "the nodes above it, too"
        assert await write(store, NEW_PARTITION._replace(tp=T1)) == 2
        await store.commit([Create(f"{paths.topic('t')}/partitions/2")])
        assert await write(store, NEW_PARTITION._replace(tp=TopicPartition("t", 2))) == 1

    stored(tmp_path, scenario)


def test_a_topic_with_the_settings_of_one_that_is_gone(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        await store.commit([Create(paths.topic_config("t"), b"left behind")])
        await write(store, TOPIC)
        config = await store.get(paths.topic_config("t"))
        assert config is not None and paths.decode_config(config.data) == {"retention.ms": "5"}

    stored(tmp_path, scenario)


@pytest.mark.parametrize("has_config", [True, False])
def test_of_a_topic_that_is_deleted_nothing_is_left(tmp_path: Path, has_config: bool) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        await write(store, TOPIC, NEW_PARTITION, MarkForDeletion("t"))
        assert (await load(store)).state.pending_deletions == {"t"}
        assert await write(store, MarkForDeletion("t", is_stored=True)) == 0
        if not has_config:
            await store.commit([Delete(paths.topic_config("t"))])
        await write(store, RemoveTopic("t", (0, 1)))
        loaded = await load(store)
        assert loaded.state.topics == {} and loaded.state.pending_deletions == set()
        assert await store.get(paths.topic_config("t")) is None
        await write(store, MarkForDeletion("u"), RemoveMark("u"))
        assert (await load(store)).state.pending_deletions == set()

    stored(tmp_path, scenario)


def test_what_cannot_be_read_is_set_aside_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        await write(store, TOPIC, NEW_PARTITION, TOPIC._replace(name="u"))
        await store.commit([Set(paths.partition_state(*T0), b"nonsense")])
        assert set((await load(store)).state.topics) == {"u"}
        with pytest.raises(paths.MalformedNodeError, match=paths.partition_state(*T0)):
            await load_topic(store, "t")
        state = ClusterState()
        for name in ("t", "u", "gone"):
            topic = await load_topic(store, "u")
            assert topic is not None
            state.topics[name] = topic
        with pytest.raises(KafkaError, match="topic 't' cannot be used until its node"):
            await reload_topic(store, state, "t")
        await reload_topic(store, state, "gone")
        assert set(state.topics) == {"u"}
        del state.topics["u"]
        await reload_topic(store, state, "u")
        assert set(state.topics) == {"u"}

    stored(tmp_path, scenario)
    assert sum("'t' is set aside" in message for message in caplog.messages) == 1


@pytest.mark.parametrize("name", ["a b", "x" * 250, "ö"])
def test_a_name_that_no_directory_should_have_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        data = paths.TopicNode(T_ID, {0: [1]}, {}, {}).encode()
        await store.commit([Create(paths.topic(name), data), Create(paths.topic("t"), data)])
        assert set((await load(store)).state.topics) == {"t"}

    stored(tmp_path, scenario)
    assert f"topic {name!r} is set aside until its node is mended: /brokers/topics/{name}: " in caplog.text


def test_brokers_that_nobody_could_be_told_of_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        await register(store, 1)
        for number, data in enumerate([b'{"endpoints":5}', b'{"endpoints":["SSL://h:1"],"rack":7}', b"[" * 100_000], 2):
            await store.commit([Create(f"{paths.BROKER_IDS}/{number}", data)])
        assert set((await load(store)).state.brokers) == {1}

    stored(tmp_path, scenario)
    for number in (2, 3, 4):
        assert f"broker {number} is left out, for its node /brokers/ids/{number} cannot be used" in caplog.text


def test_brokers_and_what_has_become_of_them_since_a_set_was_written(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        await register(store, 1)
        await write(store, TOPIC._replace(assignment={0: (1, 2, 3)}), NEW_PARTITION._replace(isr=(1, 2, 3)))
        await register(store, 2)
        await register(store, 3, was_stopped_cleanly=True)
        await store.commit([Create(f"{paths.BROKER_IDS}/4", b"nonsense"), Create(f"{paths.BROKER_IDS}/x", b"{}")])
        state, taken_over = await load(store)
        assert set(state.brokers) == {1, 2, 3}
        assert state.brokers[1].epoch < state.brokers[2].epoch and state.brokers[2].rack == "rack-2"
        assert taken_over.restarted == {T0: frozenset({2})}, "its tail may be gone"
        assert taken_over.returned == {T0: frozenset({3})}

    stored(tmp_path, scenario)


def test_events_of_log_directories_are_taken_once(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        await store.commit([Create(paths.CONTROLLER_EPOCH, b"1")])
        guard, late = Check(paths.CONTROLLER_EPOCH, 0), Check(paths.CONTROLLER_EPOCH, 1)
        assert await take_log_dir_events(store, guard) == set()
        for number, data in enumerate([paths.encode_log_dir_event(3), paths.encode_log_dir_event(1), b"nonsense"]):
            await store.commit([Create(f"{paths.LOG_DIR_EVENTS}/log_dir_event_{number}", data)])
        with pytest.raises(BadVersionError, match=paths.CONTROLLER_EPOCH):
            await take_log_dir_events(store, late)
        assert await take_log_dir_events(store, guard) == {1, 3}
        assert await take_log_dir_events(store, guard) == set()
        assert await store.get(paths.LOG_DIR_EVENTS) is not None

    stored(tmp_path, scenario)


@pytest.mark.parametrize(
    ("path", "topic"),
    [(paths.topic("t"), "t"), (paths.partition_state(*T0), "t"), (paths.TOPICS, None), (paths.topic_config("t"), None)],
)
def test_whose_state_a_node_holds(path: str, topic: str | None) -> None:
    assert topic_of(path) == topic


async def register(store: EmbeddedStore, number: int, *, was_stopped_cleanly: bool = False) -> None:
    node = paths.BrokerNode([], f"rack-{number}", was_stopped_cleanly=was_stopped_cleanly)
    await store.commit([Create(f"{paths.BROKER_IDS}/{number}", node.encode(0))])
