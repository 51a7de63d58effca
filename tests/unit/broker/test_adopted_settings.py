"""What a metadata store is told of topics that were found in directories, node by node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import StartError
from ottla.base.ids import Ids
from ottla.base.types import NIL_UUID, Uuid
from ottla.broker import adoption
from ottla.broker.adoption import adopt_topics
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.internal_topics import internal_topic
from ottla.log.found_topics import FoundTopic, FoundTopics
from ottla.metadata import paths
from ottla.metadata.embedded import EmbeddedStore
from ottla.metadata.store import Create
from tests.log_lines import messages_of
from tests.waiting import run_async

TOPIC_ID = Uuid(bytes(range(16)))
CONFIG = BrokerConfig({})


def found(name: str, **fields: Any) -> FoundTopic:
    return FoundTopic(
        **{
            "name": name,
            "topic_id": TOPIC_ID,
            "leader_epochs": {0: 0},
            "partition_count": 1,
            "configs": None,
            "was_compacted": False,
            **fields,
        }
    )


@pytest.fixture
def adopting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(what: FoundTopics, look: Callable[[Any], Awaitable[None]], config: BrokerConfig = CONFIG) -> None:
        monkeypatch.setattr(adoption, "find_topics", lambda directories: what if directories == [tmp_path] else None)

        async def scenario() -> None:
            store = await EmbeddedStore.open(tmp_path / "store")
            try:
                for path in paths.PERSISTENT_PATHS:
                    if await store.get(path) is None:
                        await store.commit([Create(path)])
                await store.commit([Create(paths.topic_config("old"), b"before")])
                dirs: Any = type("Dirs", (), {"paths": [tmp_path]})
                await adopt_topics(store, dirs, 7, config, Ids())
                await look(store)
            finally:
                await store.close()

        run_async(scenario())

    return run


async def settings_of(store: Any, topic: str) -> dict[str, str]:
    return paths.decode_config((await store.get(paths.topic_config(topic))).data)


def test_nodes_of_what_was_found(adopting: Any, caplog: pytest.LogCaptureFixture) -> None:
    topics = [
        found("old", leader_epochs={0: 4, 1: -1}, partition_count=2),
        found("new", topic_id=NIL_UUID, was_compacted=True),
        found("__consumer_offsets"),
        found("told", configs={}),
    ]

    async def look(store: Any) -> None:
        nodes = {name: paths.TopicNode.decode((await store.get(paths.topic(name))).data) for name, *_ in topics}
        assert nodes["old"] == paths.TopicNode(TOPIC_ID, {0: [7], 1: [7]}, {}, {})
        assert nodes["new"].partitions == {0: [7]} and nodes["new"].topic_id not in (NIL_UUID, TOPIC_ID)
        states = [
            paths.PartitionStateNode.decode((await store.get(paths.partition_state("old", index))).data)
            for index in (0, 1)
        ]
        assert states == [paths.PartitionStateNode(7, epoch, [7], 0) for epoch in (4, 0)]
        keep_all = {"retention.ms": "-1", "retention.bytes": "-1"}
        assert await settings_of(store, "old") == keep_all
        assert await settings_of(store, "new") == {**keep_all, "cleanup.policy": "compact"}
        assert await settings_of(store, "__consumer_offsets") == internal_topic("__consumer_offsets", CONFIG).configs
        assert await settings_of(store, "told") == {}
        assert (await store.get(paths.PRODUCER_ID_BLOCK)).data == b""

    with caplog.at_level("INFO"):
        adopting(FoundTopics(topics, ["lost"], 0), look)
    lines = messages_of(caplog, "ottla.broker.adoption")
    assert lines[:2] == [
        "topic lost is left alone: the cluster that its directories are from does not know it",
        "4 topics with 5 partitions were found in the log directories and are served from now on",
    ]
    assert len(lines) == 3 and "nothing of old, new is deleted by age or size" in lines[2]


@pytest.mark.parametrize(("next_id", "block"), [(1, (0, 0)), (4000, (0, 3999))])
def test_producer_ids_go_on_after_those_that_were_given_out(
    adopting: Any, caplog: pytest.LogCaptureFixture, next_id: int, block: tuple[int, int]
) -> None:
    async def look(store: Any) -> None:
        assert paths.decode_producer_id_block((await store.get(paths.PRODUCER_ID_BLOCK)).data) == block

    with caplog.at_level("INFO"):
        adopting(FoundTopics([found("t", configs={})], [], next_id), look)
    assert messages_of(caplog, "ottla.broker.adoption") == [
        "1 topics with 1 partitions were found in the log directories and are served from now on"
    ]


def test_settings_that_are_known_are_kept_where_they_can_be_used(
    adopting: Any, caplog: pytest.LogCaptureFixture
) -> None:
    configs = {
        "retention.ms": "5",
        "nobodys.setting": "1",
        "segment.bytes": "few",
        "remote.storage.enable": "true",
        "cleanup.policy": "compact",
    }

    async def look(store: Any) -> None:
        assert await settings_of(store, "t") == {"retention.ms": "5", "cleanup.policy": "compact"}

    adopting(FoundTopics([found("t", configs=configs)], [], 0), look)
    lines = messages_of(caplog, "ottla.broker.adoption")
    assert lines == [
        "a setting of topic t is left out: unknown topic setting nobodys.setting",
        "a setting of topic t is left out: segment.bytes must be a whole number, but was 'few'",
        "a setting of topic t is left out: remote.storage.enable is set, but nothing is tiered here; leave it out",
    ]


@pytest.mark.parametrize(("config", "topics"), [(BrokerConfig({"ottla.cluster.dir": "c"}), [found("t")]), (CONFIG, [])])
def test_where_nothing_is_adopted(
    adopting: Any, caplog: pytest.LogCaptureFixture, config: BrokerConfig, topics: list[FoundTopic]
) -> None:
    async def look(store: Any) -> None:
        assert await store.children(paths.TOPICS) == []
        assert (await store.get(paths.PRODUCER_ID_BLOCK)).data == b""

    with caplog.at_level("INFO"):
        adopting(FoundTopics(topics, [], 5), look, config)
    assert messages_of(caplog, "ottla.broker.adoption") == []


def test_a_part_of_a_topic_stops_the_start_before_anything_is_written(adopting: Any) -> None:
    async def never(store: Any) -> None:
        raise AssertionError("the start goes on")

    half = found("half", leader_epochs={0: 0, 2: 0}, partition_count=3)
    with pytest.raises(StartError, match="have 2 of the 3 partitions of topic half: it was spread over several"):
        adopting(FoundTopics([found("whole"), half], [], 0), never)
