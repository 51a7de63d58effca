"""How tables are cut into batches."""

from __future__ import annotations

import pytest

from ottla.base.types import NIL_UUID
from ottla.client.core.metadata import PartitionLeader, TopicMetadata
from ottla.client.core.on_demand import open_table_intake
from ottla.client.core.producer.encoded_batch import ASSUMED
from ottla.client.core.producer.options import ProducerSettings
from ottla.client.core.producer.partitioners import NO_BACKLOG

pa = pytest.importorskip("pyarrow")

TOPIC = TopicMetadata("t", NIL_UUID, False, {0: PartitionLeader(0, 0)}, (0,), 0)


def test_every_batch_fits_into_a_request() -> None:
    settings = ProducerSettings.parse({"bootstrap.servers": "x:1", "max.request.size": "20000"})
    intake = open_table_intake(settings, None, lambda bound: 0, lambda topic: NO_BACKLOG)
    rows = [bytes(1000)] * 100 + [bytes(19_900)]
    prepared = intake.prepare("t", pa.table({"value": rows}), ASSUMED, 0)
    batches = [rows for _, rows in intake.encode(prepared, {"t": TOPIC})]
    assert sum(batch.record_count for batch in batches) == len(rows)
    assert all(batch.size <= settings.largest_batch or batch.record_count == 1 for batch in batches)
    assert settings.largest_batch < 20_000
