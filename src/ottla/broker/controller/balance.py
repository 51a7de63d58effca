"""Hands leadership back to preferred replicas from time to time (auto.leader.rebalance.enable)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from ottla.base.errors import KafkaError
from ottla.broker.config.broker_config import BrokerConfig
from ottla.machines.cluster.balance import BalanceDue

log = logging.getLogger(__name__)

FIRST_CHECK_S = 5
"""After its election a controller gives brokers that come back this time to be in sync again."""


class Balance(NamedTuple):
    interval_s: int
    percentage: int

    @classmethod
    def of(cls, config: BrokerConfig) -> Balance | None:
        if not config.flag("auto.leader.rebalance.enable"):
            return None
        return cls(
            config.integer("leader.imbalance.check.interval.seconds"),
            config.integer("leader.imbalance.per.broker.percentage"),
        )


async def keep_balance(balance: Balance, submit: Callable[[BalanceDue], Awaitable[Any]]) -> None:
    """Until it is cancelled, because another broker is the controller."""
    await asyncio.sleep(FIRST_CHECK_S)
    while True:
        try:
            elected = await submit(BalanceDue(balance.percentage))
        except KafkaError as e:
            log.warning("the balance of leaders could not be looked at: %s", e)
        else:
            if elected:
                log.info("%d partitions are led by their preferred replicas again", len(elected))
        await asyncio.sleep(balance.interval_s)
