"""What needs a broker of its own: restarts, kills, and settings of the broker."""

from __future__ import annotations

import threading

import pytest
from aiokafka.errors import UnknownTopicOrPartitionError
from confluent_kafka import KafkaError, Message
from kafka import KafkaAdminClient, KafkaConsumer

from ottla.base.errors import ErrorCode
from tests.broker_process import BrokerProcess
from tests.interop.dataset import CODECS, SAMPLES, Sample, assert_same, numbered
from tests.interop.peers import PEERS, aiokafka_client, kcat
from tests.interop.peers.confluent import ConfluentKafka, make_topic, producer
from tests.interop.peers.peer import PATIENCE_S, RefusedError
from tests.waiting import repeat_until, run_async

pytestmark = pytest.mark.interop


def write_with_every_client(broker: BrokerProcess) -> dict[str, list[Sample]]:
    """A topic per client, with all it can send in every codec; returns what each topic holds."""
    held: dict[str, list[Sample]] = {}
    for peer in PEERS:
        sendable = [sample._replace(timestamp_ms=None) for sample in SAMPLES if peer.can_send(sample)]
        held[peer.name] = [sample for codec in CODECS for sample in sendable]
        for codec in CODECS:
            peer.write(broker.bootstrap, peer.name, sendable, codec=codec, idempotent=codec == "zstd")
    return held


def check_with_every_client(broker: BrokerProcess, held: dict[str, list[Sample]]) -> None:
    for topic, samples in held.items():
        for reader in PEERS:
            assert_same(reader.read(broker.bootstrap, topic, len(samples)), samples)


def test_all_is_there_after_a_stop_and_after_a_kill(own_broker: BrokerProcess) -> None:
    own_broker.start()
    held = write_with_every_client(own_broker)
    assert own_broker.stop() == 0
    own_broker.start()
    check_with_every_client(own_broker, held)
    for peer in PEERS:
        samples = numbered(50)
        peer.write(own_broker.bootstrap, peer.name, samples)
        held[peer.name] += samples
    own_broker.kill()
    own_broker.start()
    check_with_every_client(own_broker, held)
    assert own_broker.stop() == 0
    assert own_broker.tracebacks() == []


@pytest.mark.crash
def test_a_producer_gets_over_a_kill_and_nothing_acknowledged_is_lost(own_broker: BrokerProcess) -> None:
    own_broker.start()
    make_topic(own_broker.bootstrap, "t")
    acknowledged: list[bytes] = []
    failures: list[KafkaError] = []
    enough = threading.Event()

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)
            return
        acknowledged.append(message.key())
        if len(acknowledged) > 500:
            enough.set()

    writer = producer(
        own_broker.bootstrap,
        enable_idempotence=True,
        linger_ms=0,
        reconnect_backoff_max_ms=200,
        message_timeout_ms=4 * PATIENCE_S * 1000,
    )
    samples = numbered(5000)
    for i, (key, value, *_) in enumerate(samples):
        writer.produce("t", value, key, 0, on_delivery=delivered)
        writer.poll(0)
        if i == 2500:
            repeat_until(enough.is_set, lambda: writer.poll(0.05))
            own_broker.kill()
            own_broker.start()
    assert writer.flush(3 * PATIENCE_S) == 0
    assert failures == []
    assert acknowledged == [sample.key for sample in samples]
    # The identity of the producer outlived the broker, so what it sent again is not there twice.
    assert_same(ConfluentKafka().read(own_broker.bootstrap, "t", len(samples)), samples)
    assert own_broker.stop() == 0


def test_unknown_topics_stay_unknown_where_the_broker_does_not_create_them(own_broker: BrokerProcess) -> None:
    own_broker.overrides["auto.create.topics.enable"] = "false"
    own_broker.start()
    bootstrap = own_broker.bootstrap

    failures: list[int] = []
    writer = producer(bootstrap, topic_metadata_propagation_max_ms=0)
    writer.produce("missing", b"x", on_delivery=lambda error, _: failures.append(error.code()))
    assert writer.flush(PATIENCE_S) == 0
    assert failures == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    async def send() -> None:
        async with aiokafka_client.producer(bootstrap, request_timeout_ms=300) as sender:
            await sender.send_and_wait("missing", b"x")

    with pytest.raises(UnknownTopicOrPartitionError):
        run_async(send())

    reader = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
    assert not reader.partitions_for_topic("missing")
    reader.close()
    if kcat.KCAT is not None:
        with pytest.raises(RefusedError) as refused:
            kcat.run("-C", "-b", bootstrap, "-t", "missing", "-p", "0", "-e")
        assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    assert "missing" not in admin.list_topics()
    admin.close()
