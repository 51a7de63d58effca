"""F: a clock that is wrong."""

from __future__ import annotations

import time
from pathlib import Path

import confluent_kafka

from tests.cluster.chaos.cluster import IDS, short_sleep
from tests.cluster.chaos.load import IN_TRANSACTIONS, PLAIN
from tests.cluster.chaos.routed_client import RoutedClient
from tests.cluster.chaos.table import Scene, row
from tests.interop.groups.clients import Seat
from tests.interop.groups.ledger import Ledger
from tests.interop.groups.scene import ThreadMember
from tests.waiting import PATIENCE_S, repeat_until

_HOUR_MS = 3_600_000
_SHIFTED = Path(__file__).with_name("shifted_clock")
_TRANSACTION_KEY = 1
_OPEN = "open for long"


@row("F17", "the clock of one broker is an hour ahead, an hour behind, then jumps: nothing expires, nobody is elected")
def wrong_clock(scene: Scene) -> None:
    cluster = scene.cluster(
        begun=False, zookeeper=scene.zookeeper(), log_retention_check_interval_ms="500", log_retention_ms="7200000"
    )
    offset = scene.directory / "offset"
    for broker_id in IDS:
        _set_offset(scene.directory / f"offset-{broker_id}", 0)
        cluster.brokers[broker_id].environment = {
            "PYTHONPATH": str(_SHIFTED),
            "CLOCK_OFFSET_MS_FILE": str(scene.directory / f"offset-{broker_id}"),
        }
    cluster.begin()
    with scene.load(cluster, transactions=True) as load:
        ledger = Ledger()
        members = [
            ThreadMember(
                Seat(
                    client="confluent-range",
                    name=f"m{number}",
                    bootstrap=cluster.servers,
                    group="g",
                    topics=(PLAIN,),
                ),
                ledger,
            )
            for number in range(2)
        ]
        repeat_until(lambda: set(ledger.owners().values()) == {"m0", "m1"}, short_sleep)
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": cluster.servers, "transactional.id": _OPEN, "log_level": 0}
        )
        producer.init_transactions(PATIENCE_S)
        with RoutedClient(cluster) as client:
            victim = client.coordinator(_OPEN, _TRANSACTION_KEY)
        offset = scene.directory / f"offset-{victim}"
        before = _epochs(load.cluster.describe(PLAIN) + load.cluster.describe(IN_TRANSACTIONS))
        events = {member.seat.name: len(ledger.events(member.seat.name)) for member in members}
        for shift_ms in (_HOUR_MS, 0, -_HOUR_MS, 0):
            producer.begin_transaction()
            producer.produce(IN_TRANSACTIONS, f"{_OPEN} {shift_ms}".encode(), partition=0)
            producer.flush(PATIENCE_S)
            _set_offset(offset, shift_ms)
            time.sleep(scene.times(10, 2))
            producer.abort_transaction(PATIENCE_S)
        for _ in range(scene.times(100, 10)):
            _set_offset(offset, scene.rng.choice((-200, 200)))
            time.sleep(0.1)
        _set_offset(offset, 0)
        load.wait_for_more()
        assert _epochs(load.cluster.describe(PLAIN) + load.cluster.describe(IN_TRANSACTIONS)) == before
        assert {name: len(ledger.events(name)) for name in events} == events, "a member was taken for dead"
        for member in members:
            member.leave()


def _set_offset(path: Path, ms: int) -> None:
    made = path.with_suffix(".new")
    made.write_text(str(ms))
    made.rename(path)


def _epochs(partitions: list[confluent_kafka.TopicPartition]) -> list[int]:
    return [each.leader_epoch for each in partitions]
