"""What handlers of transaction APIs share: ask the machine of a transactional id and await its answer."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.base.errors import ErrorCode
from ottla.broker.coordinators.pending_reply import PendingResult
from ottla.broker.handler import RequestContext
from ottla.machines.coordinator import Decision, Token
from ottla.machines.transactions.answers import Answer
from ottla.machines.transactions.shard import TransactionShard

log = logging.getLogger(__name__)


async def ask(
    context: RequestContext,
    transactional_id: str,
    decide: Callable[[TransactionShard, Token, int], Decision],
) -> Answer:
    """Raises KafkaError where this broker does not coordinate the id; what the machine refuses is in the answer.

    Whether the client may use the id has to be asked before.
    """
    runtime = context.broker.transactions.runtime
    shard = runtime.shard_for(transactional_id)
    pending: PendingResult[Answer] = PendingResult()
    runtime.run(shard, decide(shard.machine, pending, context.broker.transactions.clock.wall_ms()))
    answer = await pending.future
    if answer.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING:
        # The responses of these APIs carry no message, and the client's own text does not say that ids expire.
        log.warning("%s", answer.message)
    return answer
