"""The sink's connections outlive its batches. A broker that was restarted in between is found again."""

from __future__ import annotations

from pathlib import Path

import ottla
from tests.broker_process import BrokerProcess
from tests.spark.test_sink_protocol import Query, all_rows


def test_a_batch_after_a_restart_of_the_broker_is_written_once(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path).start()
    try:
        with ottla.Admin(bootstrap_servers=broker.bootstrap) as admin:
            query = Query(admin, broker.bootstrap)
            query.commit(0, [query.write(0, 0), query.write(0, 1)])
            broker.kill()
            broker.start()
            prepared = [query.write(1, 0), query.write(1, 1)]
            broker.stop()
            broker.start()
            query.commit(1, prepared)
            assert query.visible() == all_rows(2, 2)
            assert query.nothing_is_open()
    finally:
        broker.stop()
