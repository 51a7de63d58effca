"""Kafka's own kafka-configs sees and changes the levels of our broker's loggers (KIP-412)."""

from __future__ import annotations

import re

import pytest

from ottla import Admin, NewTopic
from tests.broker_process import BrokerProcess

from .kafka_tools import KafkaToolError, KafkaTools
from .kafka_tools import kafka_tools_fixture as kafka_tools_fixture

pytestmark = pytest.mark.interop

LOGGER = "ottla.broker.topic_admin"


def test_levels_are_shown_and_changed(kafka_tools: KafkaTools, own_broker: BrokerProcess) -> None:
    own_broker.overrides["broker.id"] = "7"
    own_broker.start()

    def configs(*arguments: str) -> str:
        entity = ("--entity-type", "broker-loggers", "--entity-name", "7")
        return kafka_tools.run(
            "kafka.admin.ConfigCommand", "--bootstrap-server", own_broker.bootstrap, *entity, *arguments
        )

    assert re.search(rf"^  {LOGGER}=INFO sensitive=false", configs("--describe"), re.MULTILINE)
    assert "Completed updating" in configs("--alter", "--add-config", f"{LOGGER}=ERROR")
    assert re.search(rf"^  {LOGGER}=ERROR ", configs("--describe"), re.MULTILINE)
    with Admin(bootstrap_servers=own_broker.bootstrap) as admin:
        admin.create_topics([NewTopic("silent", 1)]).check()
    assert "Completed updating" in configs("--alter", "--delete-config", LOGGER)
    assert re.search(rf"^  {LOGGER}=INFO ", configs("--describe"), re.MULTILINE)
    with pytest.raises(KafkaToolError, match=r"no\.such\.logger"):
        configs("--alter", "--add-config", "no.such.logger=INFO")
    assert own_broker.stop() == 0
    assert [line for line in own_broker.log_lines if "silent was created" in line] == []
