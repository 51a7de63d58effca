"""ListOffsets: how far a reader may see, and when a new leader does not know it yet."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.handlers.list_offsets import _check_end_is_known, _readable_end
from ottla.wire.apis.list_offsets import ListOffsetsRequest

EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3


@pytest.mark.parametrize(
    ("replica_id", "isolation_level", "end"), [(-1, 0, 20), (-1, 1, 10), (2, 0, 30), (2, 1, 30), (0, 1, 30)]
)
def test_how_far_a_reader_may_see(replica_id: int, isolation_level: int, end: int) -> None:
    log = SimpleNamespace(last_stable_offset=10, high_watermark=20, log_end_offset=30)
    partition: Any = SimpleNamespace(log=log)
    request = ListOffsetsRequest(replica_id=replica_id, isolation_level=isolation_level)
    assert _readable_end(partition, request) == end


@pytest.mark.parametrize(
    ("version", "code"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
@pytest.mark.parametrize(
    ("timestamp", "depends_on_the_end"),
    [(LATEST, True), (0, True), (5, True), (EARLIEST, False), (MAX_TIMESTAMP, False)],
)
def test_a_new_leader_does_not_say_what_it_does_not_know(
    timestamp: int, depends_on_the_end: bool, version: int, code: ErrorCode
) -> None:
    """Its high watermark lies below what the last leader had shown."""

    def check(leader: Any) -> None:
        _check_end_is_known(SimpleNamespace(leader=leader), 0, timestamp, version)  # type: ignore[arg-type]

    check(None)
    check(SimpleNamespace(high_watermark=7, epoch_start_offset=7))
    new = SimpleNamespace(high_watermark=6, epoch_start_offset=7)
    if depends_on_the_end:
        with pytest.raises(KafkaError) as refused:
            check(new)
        assert refused.value.code is code
    else:
        check(new)
