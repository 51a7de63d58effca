"""What is in the files of internal topics: Kafka's own tool and ours read them out in the same words."""

from __future__ import annotations

from pathlib import Path

import pytest

import ottla
from ottla.cli.kafka_names.scripts import run_script
from tests.broker_process import BrokerProcess
from tests.interop.terminal.kafka_jvm import KafkaJvm
from tests.interop.terminal.kafka_jvm import kafka_jvm_fixture as kafka_jvm_fixture
from tests.interop.terminal.transcript import Said
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.interop

DUMP = "kafka-dump-log.sh"


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a broker with groups of both kinds, a deleted group, and transactions that were committed, aborted, left."""
    settings = dict.fromkeys(("offsets.topic.num.partitions", "transaction.state.log.num.partitions"), "1")
    broker = BrokerProcess(tmp_path_factory.mktemp("dumps"), {**settings, "group.initial.rebalance.delay.ms": "0"})
    broker.start()
    try:
        with ottla.Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_topics([ottla.NewTopic("orders", 2, 1), ottla.NewTopic("audit", 1, 1)]).check()
            transact(broker.bootstrap)
            for protocol in ("classic", "consumer"):
                consume(broker.bootstrap, protocol)
            admin.alter_group_offsets("gone", {ottla.TopicPartition("orders", 0): 1}).check()
            admin.delete_groups(["gone"]).check()
        assert broker.stop() == 0
    finally:
        broker.kill()
    return broker.data_dir


def transact(servers: str) -> None:
    with ottla.Producer(bootstrap_servers=servers, transactional_id="tx-1") as producer:
        producer.init_transactions()
        for ends_well in (True, False):
            producer.begin_transaction()
            for topic, partition in (("orders", 0), ("orders", 1), ("audit", 0)):
                producer.send(topic, (7).to_bytes(8, "big"), b"k", partition=partition).result()
            producer.commit_transaction() if ends_well else producer.abort_transaction()
    with ottla.Producer(bootstrap_servers=servers, transactional_id="tx-2") as producer:
        producer.init_transactions()


def consume(servers: str, protocol: str) -> None:
    with ottla.Consumer(
        bootstrap_servers=servers, group_id=f"{protocol}-group", group_protocol=protocol, auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe(["orders"])
        assert consumer.poll(timeout=PATIENCE_S)
        consumer.commit()


def ours(capfd: pytest.CaptureFixture[str], *arguments: str) -> Said:
    code = run_script(DUMP, list(arguments))
    return Said(code, *capfd.readouterr())


@pytest.mark.parametrize(
    ("partition", "flags"),
    [
        ("__consumer_offsets-0", ("--offsets-decoder",)),
        ("__consumer_offsets-0", ("--offsets-decoder", "--skip-record-metadata")),
        ("__transaction_state-0", ("--transaction-log-decoder",)),
        ("orders-0", ("--print-data-log",)),
        ("orders-0", ("--value-decoder-class", "org.apache.kafka.tools.api.LongDecoder")),
    ],
)
def test_decoded_as_kafkas_tool_does(
    data_dir: Path, kafka_jvm: KafkaJvm, capfd: pytest.CaptureFixture[str], partition: str, flags: tuple[str, ...]
) -> None:
    arguments = ("--files", str(data_dir / partition / f"{0:020}.log"), *flags)
    theirs = kafka_jvm.run(DUMP, list(arguments))
    said = ours(capfd, *arguments)
    assert said.output.splitlines() == theirs.output.splitlines()
    assert said == theirs
    assert said.output.count("payload: ") >= 2


def test_decoders_by_short_names(data_dir: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ("--files", str(data_dir / "orders-0" / f"{0:020}.log"))
    assert " key: k payload: 7\n" in ours(capfd, *arguments, "--value-decoder-class", "long").output
    assert " key: 6b payload: " in ours(capfd, *arguments, "--key-decoder-class", "hex").output
    said = ours(capfd, *arguments, "--value-decoder-class", "no.such.Decoder")
    assert said.exit_code == 1 and said.error.startswith("'no.such.Decoder' is no deserializer; there are string")
