"""Errors of ottla reassign in the words of Kafka's tool."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.errors import ErrorCode, KafkaError, OttlaError
from ottla.cli.reassign.plan_file import PlanError
from ottla.cli.reassign.work import _kafka_text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FileNotFoundError(2, "No such file", "plan.json"), "Error: Unable to read file plan.json"),
        (PlanError(Path("plan.json"), 3, "no topics"), "Error: no topics"),
        (KafkaError(code=ErrorCode.REASSIGNMENT_IN_PROGRESS), "Cannot execute because there is an existing partition"),
        (
            KafkaError("no t", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            "Error: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: ",
        ),
        (KafkaError("nobody may", code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED), "Error: nobody may"),
        (OttlaError("something else"), "Error: something else"),
    ],
)
def test_what_went_wrong(error: OttlaError | OSError, text: str) -> None:
    assert _kafka_text(error).startswith(text)
