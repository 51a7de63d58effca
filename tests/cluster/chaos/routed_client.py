"""A raw client of a cluster: each request goes, unchanged, to the broker that has to answer it."""

from __future__ import annotations

from ottla.wire.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.message import Request, Response
from tests.cluster.chaos.cluster import Cluster
from tests.raw_client import RawClient

_GROUP, _TRANSACTION = 0, 1


class RoutedClient(RawClient):
    """Has the calls of a raw client that helpers for one broker use."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._clients: dict[int, RawClient] = {}

    def __exit__(self, *_: object) -> None:
        for client in self._clients.values():
            client.__exit__()
        self._clients.clear()

    def call(self, request: Request, version: int) -> Response:
        return self._client(self._broker_for(request)).call(request, version)

    def coordinator(self, key: str, kind: int) -> int:
        response = self._client(1).call(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4)
        assert isinstance(response, FindCoordinatorResponse)
        return response.coordinators[0].node_id

    def _broker_for(self, request: Request) -> int:
        if isinstance(request, FindCoordinatorRequest):
            return 1
        topics = getattr(request, "topic_data", None) or getattr(request, "topics", None)
        group = getattr(request, "group_id", None)
        if group is not None:
            return self.coordinator(group, _GROUP)
        key = getattr(request, "transactional_id", None) or getattr(request, "v3_and_below_transactional_id", None)
        if topics and not (key and not hasattr(request, "topic_data")):
            topic = topics[0]
            part = (getattr(topic, "partition_data", None) or topic.partitions)[0]
            index = next(
                getattr(part, name) for name in ("index", "partition", "partition_index") if hasattr(part, name)
            )
            return self._cluster.leader(getattr(topic, "name", None) or topic.topic, index)
        assert key, request
        return self.coordinator(key, _TRANSACTION)

    def _client(self, broker_id: int) -> RawClient:
        client = self._clients.get(broker_id)
        if client is None:
            client = self._clients[broker_id] = self._cluster.raw_client(broker_id)
        return client
