"""What a broker hears of itself from its peers, while it cannot ask the metadata store."""

from __future__ import annotations

from pathlib import Path

from ottla.broker.standing import ask_peers
from tests.cluster.local_cluster import LocalCluster, in_cluster


def test_one_peer_that_was_told_is_enough_and_silence_says_nothing(tmp_path: Path) -> None:
    async def scenario(cluster: LocalCluster) -> None:
        own = cluster.brokers[1]
        is_given_up = ask_peers(1, own.image, own.peers)
        assert not await is_given_up()
        cluster.brokers[2].image.remove_broker(1)
        assert await is_given_up()
        cluster.brokers[2].image.brokers = {}
        assert not await is_given_up(), "it was told nothing yet"
        cluster.brokers[2].image.set_brokers(3, 1, list(own.image.brokers.values()))
        await cluster.brokers.pop(2).kill()
        assert not await is_given_up()

    in_cluster(tmp_path, scenario)
