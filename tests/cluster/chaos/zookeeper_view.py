"""What ZooKeeper holds of a cluster, read and meddled with past the brokers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kazoo.client import KazooClient

from ottla.metadata import paths
from tests.zookeeper_process import ZooKeeperProcesses

_SECRET = 0xB3415C00
"""ZooKeeper makes a session's password of this and its id."""


class ZooKeeperView:
    def __init__(self, client: KazooClient, connect: str) -> None:
        self._client = client
        self._connect = connect

    def get(self, path: str) -> tuple[bytes, Any]:
        data, stat = self._client.get(path)
        return data, stat

    def partition_epochs(self, topic: str) -> dict[int, int]:
        """How often each partition was written."""
        indexes = map(int, self._client.get_children(f"{paths.topic(topic)}/partitions"))
        return {index: self.get(paths.partition_state(topic, index))[1].version for index in indexes}

    def written_by_the_last_controller(self) -> int:
        """How many partitions were written since the last controller was elected; raises AssertionError if another one
        has written any of them."""
        epoch, elected = self.get(paths.CONTROLLER_EPOCH)
        written = 0
        for topic in self._client.get_children(paths.TOPICS):
            for index in self._client.get_children(f"{paths.topic(topic)}/partitions"):
                state, stat = self.get(paths.partition_state(topic, int(index)))
                if stat.mzxid > elected.mzxid:
                    assert json.loads(state)["controller_epoch"] == int(epoch), f"{topic}-{index}: {state!r}"
                    written += 1
        return written

    def broker_epoch(self, broker_id: int) -> int | None:
        found = self._client.exists(f"{paths.BROKER_IDS}/{broker_id}")
        return None if found is None else found.czxid

    def end_session_of(self, broker_id: int) -> None:
        """As if ZooKeeper had not heard of the broker for long."""
        session_id = self.get(f"{paths.BROKER_IDS}/{broker_id}")[1].ephemeralOwner
        other = KazooClient(self._connect, client_id=(session_id, _password(session_id)))
        other.start()
        other.stop()
        other.close()


def _password(session_id: int) -> bytes:
    """Sixteen bytes of Java's Random."""
    seed = (session_id ^ _SECRET ^ 0x5DEECE66D) & (2**48 - 1)
    made = b""
    for _ in range(4):
        seed = (seed * 0x5DEECE66D + 0xB) & (2**48 - 1)
        made += (seed >> 16 & 0xFFFFFFFF).to_bytes(4, "little")
    return made


@contextmanager
def zookeeper_view(ensemble: ZooKeeperProcesses) -> Iterator[ZooKeeperView]:
    client = KazooClient(f"{ensemble.connect}/kafka")
    client.start()
    try:
        yield ZooKeeperView(client, ensemble.connect)
    finally:
        client.stop()
        client.close()
