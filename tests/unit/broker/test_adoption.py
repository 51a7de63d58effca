"""Directories without a metadata store, as a broker on ZooKeeper leaves them: what a broker that is alone does."""

from __future__ import annotations

import shutil
import struct
import zlib
from pathlib import Path

import pytest

import ottla
from ottla.base.errors import StartError
from ottla.base.ids import Ids
from ottla.base.types import TopicPartition
from ottla.broker.metadata_store import METADATA_FILE
from ottla.log.checkpoints import write_offsets, write_partition_metadata
from ottla.testing import EmbeddedBroker
from tests.log_lines import messages_of


@pytest.fixture(scope="module")
def left_behind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two topics, one of them compacted, a transaction and a group; the store is gone."""
    data = tmp_path_factory.mktemp("left") / "data"
    with EmbeddedBroker(data, config={"broker.id": 7}) as broker:
        broker.create_topic("plain", partitions=3, config={"retention.ms": 1000})
        broker.create_topic("cleaned", config={"cleanup.policy": "compact"})
        with ottla.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="t") as producer:
            for number in range(3):
                with producer.transaction():
                    producer.send("plain", b"v%d" % number, partition=number, timestamp_ms=1_700_000_000_000)
        with ottla.Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g") as consumer:
            consumer.assign([TopicPartition("plain", 1)])
            consumer.commit({TopicPartition("plain", 1): 2})
    for path in data.glob(f"{METADATA_FILE}*"):
        path.unlink()
    write_offsets(data / "cleaner-offset-checkpoint", {TopicPartition("cleaned", 0): 0})
    return data


@pytest.fixture
def directory(left_behind: Path, tmp_path: Path) -> Path:
    return shutil.copytree(left_behind, tmp_path / "data", ignore=shutil.ignore_patterns(".lock"))


def test_topics_are_adopted_and_nothing_of_them_is_deleted(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"), EmbeddedBroker(directory, config={"log.retention.check.interval.ms": 20}) as broker:
        assert broker.running.broker_id == 7
        configs = broker.running.dynamic_configs
        assert configs.topic_overrides("plain") == {"retention.ms": "-1", "retention.bytes": "-1"}
        assert configs.log_config("cleaned").is_compacted
        assert configs.log_config("__consumer_offsets").is_compacted
        topics = broker.running.image.topics
        assert {name: len(topic.partitions) for name, topic in topics.items()} == {
            "plain": 3,
            "cleaned": 1,
            "__consumer_offsets": 1,
            "__transaction_state": 1,
        }
        assert all(
            partition.log.topic_id == topics[partition.tp.topic].topic_id for partition in broker.running.replicas
        )
        with ottla.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            assert admin.list_group_offsets(["g"])["g"][TopicPartition("plain", 1)].offset == 2
            known = admin.describe_transactions(["t"])["t"].producer_id
        with (
            ottla.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="new") as producer,
            producer.transaction(),
        ):
            producer.send("plain", b"more", partition=0)
        with ottla.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            assert admin.describe_transactions(["new"])["new"].producer_id > known, "no id is given out twice"
        values = [
            partition.log.log_end_offset for partition in broker.running.replicas if partition.tp.topic == "plain"
        ]
        assert sorted(values) == [2, 2, 4]
    assert any("nothing of cleaned, plain is deleted" in message for message in messages_of(caplog, "ottla"))
    with EmbeddedBroker(directory) as broker:
        assert len(broker.running.image.topics) == 4, "they are adopted once"


def test_half_a_topic_is_refused(directory: Path) -> None:
    shutil.rmtree(directory / "plain-1")
    with pytest.raises(
        StartError, match="have 2 of the 3 partitions of topic plain: it was spread over several brokers"
    ):
        EmbeddedBroker(directory).start()


def test_partitions_of_different_topics_are_refused(directory: Path) -> None:
    write_partition_metadata(directory / "plain-1", Ids().uuid())
    with pytest.raises(StartError, match="belong to different topics of the name plain"):
        EmbeddedBroker(directory).start()


def test_metadata_of_kraft_that_cannot_be_read_is_told(directory: Path) -> None:
    metadata = directory / "__cluster_metadata-0"
    metadata.mkdir()
    (metadata / f"{0:020}.log").write_bytes(bytes(100))
    with pytest.raises(StartError, match="cannot be read, so the settings of the topics are not known"):
        EmbeddedBroker(directory).start()


def test_records_of_an_old_format_stop_the_start(directory: Path) -> None:
    body = struct.pack(">bbii", 0, 0, -1, 3) + b"old"
    entry = struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body
    segment = directory / "plain-2" / f"{0:020}.log"
    segment.write_bytes(entry)
    with pytest.raises(StartError, match=r"plain-2/0+\.log holds records of message format 0"):
        EmbeddedBroker(directory).start()
    assert segment.read_bytes() == entry
