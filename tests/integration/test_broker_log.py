"""What a broker writes to its log while it works: decisions that took effect, each once, and nothing per request."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from ottla import Admin, Consumer, NewTopic, Producer, TopicPartition
from ottla.broker.logs import LineFormatter
from ottla.client.core.admin.types import ConfigChange, ConfigOperation, ConfigResource, ConfigSource, ResourceType
from tests.broker_process import BrokerProcess

_TIMEOUT_S = 20


def lines_about(broker: BrokerProcess, words: str) -> list[str]:
    """The lines so far that hold `words`."""
    return [line for line in list(broker.log_lines) if words in line]


def wait_for_line(broker: BrokerProcess, pattern: str) -> re.Match[str]:
    """The first line that matches; the broker's output is read by another thread, so it may take a moment."""
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        for line in list(broker.log_lines):
            found = re.search(pattern, line)
            if found is not None:
                return found
        time.sleep(0.02)
    raise AssertionError(f"no line matches {pattern!r}:\n" + "\n".join(broker.log_lines))


def test_what_becomes_of_a_topic(broker: BrokerProcess, new_topic: str) -> None:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(new_topic, 2, configs={"segment.bytes": 1_000_000})]).check()
        admin.create_partitions({new_topic: 3}).check()
        resource = ConfigResource.topic(new_topic)
        admin.incremental_alter_configs({resource: [ConfigChange("segment.bytes", 2_000_000)]}).check()
        admin.delete_topics([new_topic]).check()
    wait_for_line(broker, f"topic {new_topic} was deleted with its 3 partitions")
    assert [line.partition(": ")[2] for line in lines_about(broker, new_topic)] == [
        f"topic {new_topic} was created: 2 partitions, replication factor 1, segment.bytes=1000000",
        f"topic {new_topic} grew from 2 to 3 partitions",
        f"topic {new_topic} was reconfigured: segment.bytes=2000000",
        f"topic {new_topic} was deleted with its 3 partitions",
    ]


def test_settings_of_a_topic_that_do_nothing_are_said_where_they_are_set(own_broker: BrokerProcess) -> None:
    own_broker.start()
    command = [sys.executable, "-m", "ottla", "topics", "--create", "--bootstrap-server", own_broker.bootstrap]
    options = ["--topic", "idle", "--config", "local.retention.ms=5", "--config", "segment.bytes=1000000"]
    created = subprocess.run([*command, *options], capture_output=True, text=True, timeout=60, check=True)
    assert created.stdout == "Created topic idle.\n"
    assert created.stderr == "WARNING: local.retention.ms has no effect: nothing is tiered here.\n"
    wait_for_line(
        own_broker, r"WARNING .*topic idle has settings without effect .*: local\.retention\.ms \(nothing is t"
    )
    with Admin(bootstrap_servers=own_broker.bootstrap) as admin:
        resource = ConfigResource.topic("idle")
        admin.incremental_alter_configs({resource: [ConfigChange("message.format.version", "3.0")]}).check()
    wait_for_line(own_broker, r"WARNING .*topic idle has .*: local\.retention\.ms \(.*\), message\.format\.version \(")
    assert own_broker.stop() == 0
    own_broker.log_lines.clear()
    own_broker.start()
    wait_for_line(own_broker, "WARNING .*topics with settings without effect in this version: idle$")


def test_data_among_temporary_files(broker: BrokerProcess) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        temporary = BrokerProcess(Path(directory)).start()
        wait_for_line(temporary, rf"WARNING .*: {directory} is .*(gone after a reboot|may be removed at any time)")
        assert temporary.stop() == 0


def test_the_address_of_clients_is_no_wrong_setting(own_broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    own_broker.start()
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", own_broker.bootstrap)
    command = [sys.executable, "-m", "ottla", "topics", "--create", "--topic", "by-variable"]
    subprocess.run(command, capture_output=True, timeout=60, check=True)
    wait_for_line(own_broker, "topic by-variable was created")
    assert own_broker.stop() == 0
    own_broker.start()
    assert own_broker.stop() == 0
    assert lines_about(own_broker, "environment") == []


def test_start_and_stop(own_broker: BrokerProcess) -> None:
    own_broker.start()
    line = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO    ottla: "
    wait_for_line(
        own_broker,
        line + rf"broker \d+ of cluster \S+ started in \d+ ms on PLAINTEXT://{own_broker.bootstrap}, with 0 t",
    )
    assert own_broker.stop() == 0
    wait_for_line(own_broker, line + "stopping, because SIGTERM came$")
    wait_for_line(own_broker, line + r"broker \d+ stopped in \d+ ms; all logs are closed$")


def test_what_recovery_found(own_broker: BrokerProcess) -> None:
    own_broker.start()
    with Producer(bootstrap_servers=own_broker.bootstrap) as producer:
        producer.send("torn", b"x" * 1000).result(20)
    own_broker.kill()
    with (own_broker.data_dir / "torn-0" / f"{0:020}.log").open("ab") as file:
        file.write(b"half a batch")
    own_broker.log_lines.clear()
    own_broker.start()
    found = wait_for_line(
        own_broker,
        r"WARNING .*: 1 of 1 partitions were recovered in \d+ ms: 1 segments with (\d+) bytes checked, 12 bytes drop",
    )
    assert int(found.group(1)) > 1012
    assert own_broker.stop() == 0
    own_broker.log_lines.clear()
    own_broker.start()
    wait_for_line(own_broker, r"INFO .*: 1 partitions were opened in \d+ ms$")


def test_levels_by_setting(own_broker: BrokerProcess, new_topic: str) -> None:
    own_broker.overrides["ottla.log.level"] = "ERROR,ottla.broker.topic_admin=INFO"
    own_broker.start()
    with Admin(bootstrap_servers=own_broker.bootstrap) as admin:
        admin.create_topics([NewTopic(new_topic, 1)]).check()
    wait_for_line(own_broker, f"topic {new_topic} was created")
    assert lines_about(own_broker, "started in") == []


def test_levels_while_it_runs(own_broker: BrokerProcess) -> None:
    """As Kafka's own tools change them (KIP-412)."""
    own_broker.start()
    with Admin(bootstrap_servers=own_broker.bootstrap) as admin:
        (broker_id,) = admin.describe_cluster().brokers
        loggers = ConfigResource(ResourceType.BROKER_LOGGER, str(broker_id))
        levels = admin.describe_configs([loggers])[loggers]
        assert (levels["root"].value, levels["ottla.broker.topic_admin"].value) == ("INFO", "INFO")
        assert levels["root"].source is ConfigSource.BROKER_LOGGER

        admin.incremental_alter_configs({loggers: [ConfigChange("ottla.broker", "WARN")]}).check()
        admin.create_topics([NewTopic("silent", 1)]).check()
        assert admin.describe_configs([loggers])[loggers]["ottla.broker.topic_admin"].value == "WARN"

        back = ConfigChange("ottla.broker", None, ConfigOperation.DELETE)
        admin.incremental_alter_configs({loggers: [back]}).check()
        admin.create_topics([NewTopic("told", 1)]).check()
        wait_for_line(own_broker, "topic told was created")
        assert lines_about(own_broker, "topic silent was created") == []

        for change, words in (
            (ConfigChange("ottla.broker", "LOUD"), "must be one of TRACE, DEBUG"),
            (ConfigChange("no.such.logger", "INFO"), "there is no logger no.such.logger"),
            (ConfigChange("root", None, ConfigOperation.DELETE), "must have a level"),
        ):
            assert words in admin.incremental_alter_configs({loggers: [change]}).errors[loggers].message


def test_names_from_outside_cannot_forge_a_line() -> None:
    record = logging.LogRecord(
        "ottla.x", logging.INFO, "", 0, "group %s", ("a\n2026-01-01 INFO ottla: all is well",), None
    )
    (line,) = LineFormatter().format(record).splitlines()
    assert line.endswith("group a\\n2026-01-01 INFO ottla: all is well")


def test_groups_and_transactions(own_broker: BrokerProcess) -> None:
    own_broker.overrides |= {
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    }
    own_broker.start()
    servers = own_broker.bootstrap
    with Producer(bootstrap_servers=servers, transactional_id="books", transaction_timeout_ms=1000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"x").result(20)
        wait_for_line(
            own_broker,
            r"INFO .*transactional id books: producer \d+ of epoch 0 is fenced and its transaction aborted, which was "
            "open for more than 1000 ms",
        )
    with Producer(bootstrap_servers=servers, transactional_id="books") as producer:
        producer.init_transactions()
        wait_for_line(own_broker, "transactional id books: a new producer takes over from producer")
    with Consumer(bootstrap_servers=servers, group_id="shop", client_id="one", auto_offset_reset="earliest") as one:
        one.subscribe(["orders"])
        poll_until(
            own_broker, one, r"INFO .*group shop: generation 1 with member one-\S+, because member one-\S+ joined"
        )
    wait_for_line(own_broker, r"INFO .*group shop: generation 2 has no members, because member one-\S+ left")
    assert len(lines_about(own_broker, "group shop: ")) == 2


def poll_until(broker: BrokerProcess, consumer: Consumer, pattern: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not any(re.search(pattern, line) for line in list(broker.log_lines)):
        assert time.monotonic() < deadline, "\n".join(broker.log_lines)
        consumer.poll(100)


def test_nothing_is_written_for_a_request(own_broker: BrokerProcess) -> None:
    own_broker.overrides["ottla.slow.request.ms"] = "0"  # a busy machine is no concern of this test
    own_broker.start()
    with Admin(bootstrap_servers=own_broker.bootstrap) as admin:
        admin.create_topics([NewTopic("quiet", 1)]).check()
        wait_for_line(own_broker, "topic quiet was created")
        own_broker.log_lines.clear()
        with Producer(bootstrap_servers=own_broker.bootstrap) as producer:
            for number in range(200):
                producer.send("quiet", b"%d" % number)
        with Consumer(bootstrap_servers=own_broker.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("quiet", 0)])
            seen = 0
            deadline = time.monotonic() + _TIMEOUT_S
            while seen < 200 and time.monotonic() < deadline:
                seen += len(consumer.poll(100))
        assert seen == 200
        admin.create_topics([NewTopic("after", 1)]).check()
    wait_for_line(own_broker, "topic after was created")
    assert len(own_broker.log_lines) == 1


def test_slow_requests(own_broker: BrokerProcess) -> None:
    own_broker.overrides["ottla.slow.request.ms"] = "1"
    own_broker.start()
    with Admin(bootstrap_servers=own_broker.bootstrap, client_id="builder") as admin:
        admin.create_topics([NewTopic("wide", 50)]).check()
        line = r"WARNING .*: CREATE_TOPICS version \d+ of client builder at 127\.0\.0\.1 took \d+ ms"
        wait_for_line(own_broker, line)
        off = {ConfigResource.broker(): [ConfigChange("ottla.slow.request.ms", 0)]}
        admin.incremental_alter_configs(off).check()
        wait_for_line(own_broker, r"INFO .*settings of all brokers were changed: ottla\.slow\.request\.ms=0$")
        own_broker.log_lines.clear()
        admin.create_topics([NewTopic("wider", 50)]).check()
        wait_for_line(own_broker, "topic wider was created")
    assert own_broker.stop() == 0
    assert lines_about(own_broker, " took ") == []
