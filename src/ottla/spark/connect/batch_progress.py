"""What a database remembers of a query's batches, and what that means for the batch at hand.

Pure. The rows and the memory of them are committed together, so the memory is never ahead of the rows or behind them.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.errors import OttlaError

BEFORE_ANY_BATCH = -1
"""The batch before the first."""


class BatchRefusedError(OttlaError):
    """A batch that does not follow what the database holds: writing it would double rows or leave a gap."""


class Progress(NamedTuple):
    """The last batch a sink has written. `offsets` are those of the batch's end, one text per source."""

    query_id: str
    batch_id: int
    offsets: tuple[str, ...]


def must_write(remembered: Progress | None, batch: Progress, *, sink: str, accept_new_checkpoint: bool = False) -> bool:
    """True if the batch is the next one, False if it was written already; else BatchRefusedError."""
    if remembered is None:
        return True
    if remembered.query_id != batch.query_id:
        if accept_new_checkpoint:
            return True
        raise BatchRefusedError(
            f"sink {sink!r} was last written from another checkpoint (batch {remembered.batch_id}, offsets "
            f"{' '.join(remembered.offsets)}), and this one would start over. Use that checkpoint; or let the source "
            "start at these offsets and set on_new_checkpoint: accept; or delete the sink's row from ottla_progress"
        )
    if batch.batch_id == remembered.batch_id:
        if batch.offsets == remembered.offsets:
            return False
        raise BatchRefusedError(
            f"batch {batch.batch_id} of sink {sink!r} was written up to {' '.join(remembered.offsets)}, but the "
            f"checkpoint now plans it up to {' '.join(batch.offsets)}: the checkpoint was changed"
        )
    if batch.batch_id == remembered.batch_id + 1:
        return True
    if batch.batch_id < remembered.batch_id:
        raise BatchRefusedError(
            f"the checkpoint of sink {sink!r} is at batch {batch.batch_id}, but the database holds everything up to "
            f"batch {remembered.batch_id}: the checkpoint is an old copy"
        )
    raise BatchRefusedError(
        f"the checkpoint of sink {sink!r} is at batch {batch.batch_id}, but the database ends with batch "
        f"{remembered.batch_id}: the database is an old copy, and the batches between are missing in it"
    )
