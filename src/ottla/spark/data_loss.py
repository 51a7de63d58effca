"""What happens to records that are gone before they were read: an error, or a warning if that is what was asked for."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ottla.base.errors import OttlaError

log = logging.getLogger(__name__)


class DataLossError(OttlaError):
    """Records that a query should have read are not there any more."""


def report_loss(losses: Sequence[str], *, fail: bool) -> None:
    """Raises DataLossError about the losses, if there are any, or warns of them."""
    if not losses:
        return
    told = "; ".join(losses)
    if fail:
        raise DataLossError(
            f"records were lost: {told}. They were deleted before they were read (retention, deleted records) or their"
            " topic was deleted or made anew; set failOnDataLoss=false to go on with what is left"
        )
    log.warning("records were lost, and the query goes on with what is left (failOnDataLoss=false): %s", told)
