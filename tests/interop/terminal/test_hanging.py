"""A transaction that no coordinator knows: found and aborted by our commands, which say what Kafka's own tool says."""

from __future__ import annotations

import re

import pytest

import ottla
from ottla.cli.kafka_names.scripts import run_script
from tests.broker_process import BrokerProcess
from tests.integration.calls import create_topic
from tests.interop.terminal.kafka_jvm import KafkaJvm
from tests.interop.terminal.kafka_jvm import kafka_jvm_fixture as kafka_jvm_fixture
from tests.interop.terminal.transcript import Said
from tests.interop.transactions.raw_producer import PRODUCE_OLD, RawProducer, last_stable_offset
from tests.raw_client import RawClient
from tests.unit.cli.commands import Commands

pytestmark = pytest.mark.interop

TRANSACTIONS = "kafka-transactions.sh"
PLACE = ("--topic", "ledger", "--partition", "0")


def test_found_and_aborted(own_broker: BrokerProcess, kafka_jvm: KafkaJvm, capsys: pytest.CaptureFixture[str]) -> None:
    # Brokers that do not ask the coordinator (before KIP-890) take records of a transaction that has been forgotten.
    own_broker.overrides["transaction.partition.verification.enable"] = "false"
    own_broker.start()
    command = Commands(own_broker.bootstrap, capsys)
    with (
        RawClient(own_broker.port) as client,
        ottla.Producer(bootstrap_servers=own_broker.bootstrap, transactional_id="tx-open") as producer,
    ):
        create_topic(client, "ledger")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("ledger", b"known").result()
        lost = RawProducer(client, "tx-lost").init()
        assert lost.produce("ledger", b"lost", version=PRODUCE_OLD).error_code == 0
        for arguments in (
            ("list",),
            ("describe", "--transactional-id", "tx-lost"),
            ("describe-producers", *PLACE),
            ("find-hanging", *PLACE, "--max-transaction-timeout", "0"),
            ("find-hanging", "--topic", "ledger"),
            ("abort", *PLACE, "--start-offset", "77"),
            ("abort", *PLACE),
            ("find-hanging",),
        ):
            said = both(own_broker, kafka_jvm, capsys, arguments)
            assert said[0] == said[1], arguments
        (found,) = command.json("transactions", "find-hanging", *PLACE, "--max-transaction-timeout", "0")
        assert (found["producer_id"], found["start_offset"]) == (lost.producer_id, 1)
        producer.commit_transaction()
        assert last_stable_offset(client, "ledger") == 1
        done = f"Aborted the transaction of producer {lost.producer_id} on ledger-0.\n"
        assert command("transactions", "abort", *PLACE, "--start-offset", "1") == (0, done, "")
        assert last_stable_offset(client, "ledger") == 4
        assert command.json("transactions", "find-hanging", *PLACE, "--max-transaction-timeout", "0") == []
        assert command("transactions", "abort", *PLACE, "--start-offset", "1")[0] == 1
    read = ("--from-beginning", "--timeout-ms", "500", "--isolation-level", "read_committed")
    assert command("consume", "ledger", *read)[1] == "known\n"


def both(
    broker: BrokerProcess, jvm: KafkaJvm, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> tuple[Said, Said]:
    words = ["--bootstrap-server", broker.bootstrap, *arguments]
    theirs = jvm.run(TRANSACTIONS, words)
    ours = Said(run_script(TRANSACTIONS, words), *capsys.readouterr())
    return _comparable(ours), _comparable(theirs)


def _comparable(said: Said) -> Said:
    """Rows have the order of a hash table in Kafka, and an open transaction gets older."""
    lines = sorted(re.sub(r"\b1\d{12}\b", "<MS>", said.output).splitlines())
    return said._replace(output="\n".join(lines))
