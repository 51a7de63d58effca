"""The example that keeps its offsets beside its results: killed, replaced and cut off, its totals are exact."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from examples.offsets_in_database.store import OvertakenError, Store, Total

import ottla
from tests.broker_process import BrokerProcess
from tests.spark.mariadb import MariadbProcess
from tests.waiting import PATIENCE_S, repeat_until

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

MAIN = Path(__file__).parents[3] / "examples" / "offsets_in_database" / "main.py"
RECORDS = 8000
PARTITIONS = 4
MEMBERS = 2
FROZEN_S = 5
Ask = Callable[[str], list[tuple[Any, ...]]]


class Members:
    """Processes of the example, one for each name; who dies or is replaced gets a successor of the same name."""

    def __init__(self, url: str, broker: BrokerProcess, topic: str, log: Path) -> None:
        self._command = [sys.executable, str(MAIN), url]
        settings = {"TOPIC": topic, "GROUP_ID": topic, "RECORDS_AT_ONCE": "20"}
        self._environment = {**os.environ, "OTTLA_BOOTSTRAP_SERVERS": broker.bootstrap, **settings}
        self._log = log
        self._all: list[subprocess.Popen[bytes]] = []
        self.by_name: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                self._command, env={**self._environment, "INSTANCE": name}, stdout=log, stderr=log
            )
        self._all.append(process)
        self.by_name[name] = process

    def kill(self, name: str) -> None:
        self.by_name[name].kill()
        self.by_name[name].wait(PATIENCE_S)
        self.start(name)

    def replace_frozen(self, name: str, has_gone_on: Callable[[], bool]) -> None:
        """As on a machine that stood still: its successor works before it wakes up. If it has been frozen within a
        transaction, with its locks, nobody can before."""
        frozen = self.by_name[name]
        frozen.send_signal(signal.SIGSTOP)
        self.start(name)
        give_up_s = time.monotonic() + FROZEN_S
        while not has_gone_on() and time.monotonic() < give_up_s:
            time.sleep(0.1)
        frozen.send_signal(signal.SIGCONT)

    def revive(self) -> None:
        """Those that have ended, because their database or their place in the group was gone."""
        for name, process in list(self.by_name.items()):
            if process.poll() is not None:
                self.start(name)

    def stop(self) -> None:
        for process in self._all:
            process.kill()
            process.wait(PATIENCE_S)


@contextmanager
def place(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[str, Ask, MariadbProcess | None]]:
    if kind == "mysql":
        mariadb: MariadbProcess = request.getfixturevalue("mariadb")
        mariadb.rows("DROP TABLE IF EXISTS totals, consumer_offsets")
        yield mariadb.url, mariadb.rows, mariadb
        return

    def ask(query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(tmp_path / "totals.db", timeout=60)) as connection:
            return connection.execute(query).fetchall()

    yield f"sqlite:{tmp_path / 'totals.db'}", ask, None


def fill(broker: BrokerProcess, topic: str) -> dict[str, tuple[int, int]]:
    """What the totals have to be."""
    orders = [{"customer": f"customer {number * 7 % 23}", "cents": number} for number in range(RECORDS)]
    with ottla.Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([ottla.NewTopic(topic, PARTITIONS)]).check()
    with ottla.Producer(bootstrap_servers=broker.bootstrap) as producer:
        values = pa.array([json.dumps(order).encode() for order in orders], pa.binary())
        partitions = pa.array([number % PARTITIONS for number in range(RECORDS)], pa.int32())
        table = pa.table({"value": values, "partition": partitions})
        producer.send_arrow(topic, table, partition_column="partition").result(60)
    counts, cents = Counter[str](), Counter[str]()
    for order in orders:
        counts[str(order["customer"])] += 1
        cents[str(order["customer"])] += int(str(order["cents"]))
    return {customer: (counts[customer], cents[customer]) for customer in counts}


@pytest.mark.parametrize("kind", ["sqlite", "mysql"])
def test_totals_are_exact_whatever_is_killed(
    kind: str, request: pytest.FixtureRequest, spark_broker: BrokerProcess, new_topic: str, tmp_path: Path
) -> None:
    expected = fill(spark_broker, new_topic)
    chance = random.Random(14)
    log = tmp_path / "members.log"
    with place(kind, request, tmp_path) as (url, ask, mariadb):
        members = Members(url, spark_broker, new_topic, log)

        Store(url, new_topic).close()

        def done() -> int:
            return int(ask("SELECT COALESCE(sum(next_offset), 0) FROM consumer_offsets")[0][0])

        def go_on_until(count: int) -> None:
            def revived() -> bool:
                members.revive()
                return done() >= count

            repeat_until(revived)

        try:
            for member in range(MEMBERS):
                members.start(f"member-{member}")
            for step in range(1, 7):
                go_on_until(step * RECORDS // 8 + chance.randrange(200))
                if step == 3:
                    before = done()
                    members.replace_frozen("member-0", lambda before=before: done() > before + RECORDS // 10)  # type: ignore[misc]
                elif step == 5 and mariadb is not None:
                    mariadb.kill()
                    mariadb.start()
                else:
                    members.kill(f"member-{chance.randrange(MEMBERS)}")
            go_on_until(RECORDS)
            assert done() == RECORDS
        finally:
            members.stop()
            said = log.read_text()
            print(said)
        assert "Traceback" not in said
        totals = ask("SELECT customer, orders, cents FROM totals")
        assert {customer: (orders, cents) for customer, orders, cents in totals} == expected


@pytest.mark.parametrize("kind", ["sqlite", "mysql"])
def test_who_comes_second_adds_nothing(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Two that both think the partition is theirs."""
    partition = ottla.TopicPartition("orders", 0)
    with (
        place(kind, request, tmp_path) as (url, ask, _),
        closing(Store(url, "g")) as one,
        closing(Store(url, "g")) as two,
    ):
        assert (one.next_offset(partition, 5), two.next_offset(partition, 0)) == (5, 5)
        one.add({"ann": Total(2, 30)}, partition, before=5, after=7)
        with pytest.raises(OvertakenError):
            two.add({"ann": Total(3, 60)}, partition, before=5, after=8)
        assert two.next_offset(partition, 0) == 7
        two.add({"ann": Total(1, 1)}, partition, before=7, after=8)
        assert ask("SELECT customer, orders, cents FROM totals") == [("ann", 3, 31)]
