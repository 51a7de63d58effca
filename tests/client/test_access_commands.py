"""ottla acls, users and quotas on a broker of Apache Kafka: librdkafka and Kafka's own tools see what they do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

import ottla
from ottla.cli.kafka_names.scripts import run_script
from tests.client.admin_shells import until
from tests.client.consumer_shells import PATIENCE_S
from tests.interop.kafka_tools import KafkaTools, fetch_kafka_libs
from tests.kafka_process import KafkaProcess
from tests.unit.cli.commands import Commands

pytestmark = pytest.mark.xdist_group("apache-kafka")

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
USER = "ann"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcess]:
    process = KafkaProcess(fetch_kafka_libs(), tmp_path_factory.mktemp("kafka"), SETTINGS, with_scram=True).start()
    yield process
    process.stop()


@pytest.fixture
def command(kafka: KafkaProcess, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(kafka.bootstrap, capsys)


def written_by(kafka: KafkaProcess, password: str, topic: str) -> str:
    """What becomes of a record that the user writes: nothing, or the name of the error."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": kafka.sasl_bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": password,
            "message.timeout.ms": 3000,
            "log_level": 0,
        }
    )
    outcomes: list[str] = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: outcomes.append(error.name() if error else ""))
    producer.flush(PATIENCE_S)
    return outcomes[0]


def test_a_user_is_let_in_and_may_write_until_both_are_taken_back(
    kafka: KafkaProcess, command: Commands, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command.shown("topics", "create", "orders")
    password = tmp_path / "password"
    password.write_text("secret\n")
    assert command.json("users", "list") == []
    told = f"Set the password of user '{USER}' (SCRAM-SHA-512).\n"
    assert command("users", "set", USER, "--password-file", str(password)) == (0, told, "")
    until(lambda: command.json("users", "list") == [{"user": USER, "mechanism": "SCRAM-SHA-512", "iterations": 8192}])
    until(lambda: written_by(kafka, "secret", "orders") == "TOPIC_AUTHORIZATION_FAILED")

    allowed = ("--allow-principal", f"User:{USER}", "--producer", "--topic", "orders")
    assert "operation=WRITE, permissionType=ALLOW" in command.shown("acls", "add", *allowed)
    until(lambda: {rule["operation"] for rule in command.json("acls", "list")} == {"WRITE", "DESCRIBE", "CREATE"})
    until(lambda: written_by(kafka, "secret", "orders") == "")
    assert written_by(kafka, "guessed", "orders") != ""
    assert_listed_as_kafka_does(kafka, capsys)

    assert command("acls", "remove", "--topic", "orders")[0] == 2, "nobody can be asked here"
    assert len(command.json("acls", "remove", "--topic", "orders", "--yes")) == 3
    until(lambda: command.json("acls", "list", "--topic", "orders") == [])
    until(lambda: written_by(kafka, "secret", "orders") == "TOPIC_AUTHORIZATION_FAILED")
    assert command("users", "delete", USER)[0] == 0
    until(lambda: command.json("users", "list") == [])
    code, _, error = command("users", "delete", USER)
    assert (code, error.count("\n")) == (1, 1) and USER in error


def assert_listed_as_kafka_does(kafka: KafkaProcess, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--bootstrap-server", kafka.bootstrap, "--list"]
    assert run_script("kafka-acls.sh", words) == 0
    theirs = KafkaTools(fetch_kafka_libs()).run("kafka.admin.AclCommand", *words)
    assert _rules(capsys.readouterr().out) == _rules(theirs)


def _rules(text: str) -> list[str]:
    """Rules have the order of a hash table in Kafka, so that another one begins the list."""
    return sorted(line.strip() for line in re.split(r"\n", text))


def test_quotas_are_set_and_taken_back(kafka: KafkaProcess, command: Commands) -> None:
    whose = ("--user", USER, "--client", "<default>")
    assert command("quotas", "set", *whose, "producer_byte_rate=1024", "request_percentage=50")[0] == 0
    until(lambda: len(command.json("quotas", "list")) == 2)
    with ottla.Admin(bootstrap_servers=kafka.bootstrap) as admin:
        (quotas,) = admin.describe_client_quotas(user=USER, client_id=ottla.QUOTA_DEFAULT).values()
        assert quotas == {"producer_byte_rate": 1024.0, "request_percentage": 50.0}
    assert command("quotas", "delete", *whose, "request_percentage")[0] == 0
    until(lambda: [row["quota"] for row in command.json("quotas", "list", *whose)] == ["producer_byte_rate"])
    code, _, error = command("quotas", "set", *whose, "no_such_rate=1")
    assert (code, error.count("\n")) == (1, 1) and "no_such_rate" in error
    assert command("quotas", "set", *whose, "producer_byte_rate=much")[0] == 2
