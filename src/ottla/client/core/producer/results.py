"""What became of a batch: what a reply says of it, and how that is put into words if it took too long."""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.errors import ErrorCode
from ottla.client.core.metadata import NO_LEADER, PartitionLeader
from ottla.client.core.producer.batch import UNKNOWN_OFFSET, Batch
from ottla.client.errors import DeliveryTimeoutError
from ottla.records.batch import NO_TIMESTAMP


class PartitionResult(NamedTuple):
    """What a reply says of one batch."""

    error_code: int
    base_offset: int = UNKNOWN_OFFSET
    log_append_time_ms: int = NO_TIMESTAMP
    message: str | None = None
    leader: PartitionLeader | None = None
    record_errors: tuple[tuple[int, str | None], ...] = ()
    """The records for which the batch was refused, and what is wrong with each (KIP-467)."""


def cause_of(result: PartitionResult, node_id: int | None) -> str:
    """Why a batch has to be sent again; `node_id` is the broker's who has said so, if one has."""
    if node_id is None and result.message:
        return result.message
    known = result.error_code in ErrorCode._value2member_map_
    name = ErrorCode(result.error_code).name if known else f"error code {result.error_code}"
    said = f"{name} ({result.message})" if result.message else name
    return said if node_id is None else f"{said} from broker {node_id}"


def cause_unsaid(leader_id: int, *, is_in_flight: bool) -> str:
    """The same of a batch that nothing has been heard of."""
    if leader_id == NO_LEADER:
        return "the partition has no leader that is known"
    return f"no answer from broker {leader_id} yet" if is_in_flight else f"it waited for its turn at broker {leader_id}"


def too_late(batch: Batch, timeout_ms: int, cause: str, *, is_transactional: bool) -> DeliveryTimeoutError:
    fate = "it may have been stored" if batch.attempts else "it was never sent"
    return DeliveryTimeoutError(
        f"{batch.topic_partition}: not acknowledged within delivery.timeout.ms ({timeout_ms} ms); {fate};"
        f" last: {cause}",
        requires_abort=is_transactional,
    )
