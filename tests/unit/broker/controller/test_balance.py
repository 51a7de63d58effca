"""When a controller looks at the balance of leaders."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.controller import balance
from ottla.broker.controller.balance import Balance, keep_balance
from ottla.machines.cluster.balance import BalanceDue
from tests.log_lines import messages_of


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, Balance(300, 10)),
        (
            {"leader.imbalance.check.interval.seconds": "7", "leader.imbalance.per.broker.percentage": "3"},
            Balance(7, 3),
        ),
        ({"auto.leader.rebalance.enable": "false"}, None),
    ],
)
def test_settings_of_the_balance(settings: dict[str, str], expected: Balance | None) -> None:
    assert Balance.of(BrokerConfig(settings)) == expected


def test_it_is_looked_at_first_after_five_seconds_and_then_again_and_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[Any] = []
    answers: list[Any] = [(), KafkaError("too busy", code=ErrorCode.UNKNOWN_SERVER_ERROR), ("one", "two")]

    async def sleep(seconds: float) -> None:
        done.append(seconds)
        if not answers:
            raise asyncio.CancelledError

    async def submit(event: BalanceDue) -> Any:
        done.append(event)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(balance, "asyncio", SimpleNamespace(sleep=sleep))
    loop = asyncio.new_event_loop()
    try:
        with caplog.at_level("INFO"), pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(keep_balance(Balance(300, 10), submit))
    finally:
        loop.close()
    assert done == [5, BalanceDue(10), 300, BalanceDue(10), 300, BalanceDue(10), 300]
    assert messages_of(caplog, "ottla.broker.controller.balance") == [
        "the balance of leaders could not be looked at: UNKNOWN_SERVER_ERROR: too busy",
        "2 partitions are led by their preferred replicas again",
    ]
