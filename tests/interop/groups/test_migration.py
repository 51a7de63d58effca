"""Groups that move from the classic protocol to KIP-848's and back, member by member, while records are written."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.broker_process import BrokerProcess
from tests.interop.groups.clients import KIP_848
from tests.interop.groups.ledger import Partition
from tests.interop.groups.scene import CommitWatch, Scene, describe, wait_until, write_records
from tests.interop.groups.test_members_come_and_go import PARTITIONS, all_of, ends, expected
from tests.interop.peers.confluent import make_topic
from tests.interop.peers.peer import PATIENCE_S

pytestmark = pytest.mark.interop

ROUND = 20
CLASSIC_CLIENTS = ["confluent-range", "confluent-cooperative", "kafka-python-range", "aiokafka-range"]


class Writer:
    """Writes records to all partitions, a round after the other, until it is stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.per_partition = 0
        self._bootstrap = bootstrap
        self._topic = topic
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._write, daemon=True)

    def _write(self) -> None:
        try:
            while not self._stop.wait(0.1):
                write_records(self._bootstrap, self._topic, PARTITIONS, ROUND, first=self.per_partition)
                self.per_partition += ROUND
        except BaseException as e:
            self._failure = e

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure


def settle(scene: Scene, members: set[str], partitions: set[Partition], *, is_kip_848: bool) -> None:
    """As `Scene.settle`, of a group that is of this kind now."""

    def now() -> tuple[str, list[str], int]:
        return describe(scene.broker, scene.group, is_kip_848=is_kip_848)

    def is_settled() -> bool:
        owners = scene.ledger.owners()
        return (
            owners.keys() == partitions and set(owners.values()) == members and now()[:2] == ("Stable", sorted(members))
        )

    wait_until(is_settled, lambda: f"wanted {members}: {now()}, {scene.ledger.shares()}, {scene.ledger.errors[-5:]}")


@pytest.mark.parametrize("classic", CLASSIC_CLIENTS)
def test_a_group_moves_to_the_new_protocol_and_back_member_by_member(
    group_broker: BrokerProcess, new_topic: str, classic: str
) -> None:
    make_topic(group_broker.bootstrap, new_topic, PARTITIONS)
    group, topics, everything = f"{new_topic}-group", (new_topic,), all_of(new_topic)
    writer = Writer(group_broker.bootstrap, new_topic)
    with Scene(group_broker, group, classic) as scene, CommitWatch(group_broker, group) as commits:
        with writer.running():
            old = [scene.join(f"old-{number}", topics=topics) for number in range(3)]
            settle(scene, {"old-0", "old-1", "old-2"}, everything, is_kip_848=False)
            new = []
            present = {"old-0", "old-1", "old-2"}
            for number in range(3):
                new.append(scene.join(f"new-{number}", client=KIP_848, topics=topics))
                present.add(f"new-{number}")
                settle(scene, present, everything, is_kip_848=True)
                scene.leave(old[number])
                present.remove(f"old-{number}")
                settle(scene, present, everything, is_kip_848=True)
            for number in range(3):
                scene.join(f"old-{number + 3}", topics=topics)
                present.add(f"old-{number + 3}")
                settle(scene, present, everything, is_kip_848=True)
                scene.leave(new[number])
                present.remove(f"new-{number}")
                settle(scene, present, everything, is_kip_848=number < 2)
        written = writer.per_partition
        commits.wait_for(ends(new_topic, written))
    assert scene.ledger.consumed() == expected(new_topic, written)
    assert scene.ledger.read_again() == [], scene.ledger.errors
    assert describe(group_broker, group)[0] == "Empty"
