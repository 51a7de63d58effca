"""How a broker leaves a cluster: others take over what it leads before it stops answering (controlled shutdown)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ottla.base.errors import KafkaError

if TYPE_CHECKING:
    from ottla.broker.node import Broker

log = logging.getLogger(__name__)

_HANDOVER_S = 5.0
"""How long a stopping broker waits to hear that it leads nothing any more."""
_POLL_S = 0.01


async def leave_cluster(broker: Broker) -> None:
    """Returns when others lead, or when it is clear that nobody can."""
    config = broker.config
    has_others = len(broker.image.brokers) > 1
    if not has_others or broker.orphaned.is_set() or not config.flag("controlled.shutdown.enable"):
        return
    attempts = config.integer("controlled.shutdown.max.retries")
    for attempt in range(attempts):
        if attempt:
            await asyncio.sleep(config.integer("controlled.shutdown.retry.backoff.ms") / 1000)
        try:
            remaining = await broker.controller_client.relieve(broker.broker_id, broker.orders.broker_epoch)
        except (KafkaError, OSError) as e:
            log.info("the controller could not be asked to take over, attempt %d of %d: %s", attempt + 1, attempts, e)
            continue
        if not remaining:
            await _until_nothing_is_led(broker)
            return
        log.info("%d partitions have nobody else to lead them, such as %s", len(remaining), remaining[0])
    log.warning("this broker stops although it leads partitions that others could not take over")


async def _until_nothing_is_led(broker: Broker) -> None:
    """The new roles are on their way; clients that come meanwhile are still served."""
    deadline_s = asyncio.get_running_loop().time() + _HANDOVER_S
    while asyncio.get_running_loop().time() < deadline_s:
        if not any(partition.leader is not None and partition.leader.followers for partition in broker.replicas):
            return
        await asyncio.sleep(_POLL_S)
