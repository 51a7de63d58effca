"""The nodes of the store: what was written is read again, in the JSON that Kafka's tools know."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from ottla.base.types import Endpoint
from ottla.metadata.paths import BrokerNode

LISTENERS = st.sampled_from(("PLAINTEXT", "SSL", "INTERNAL"))
HOSTS = st.sampled_from(("127.0.0.1", "::1", "host.example"))
PROTOCOLS = st.sampled_from(("PLAINTEXT", "SSL"))


@given(
    endpoints=st.lists(
        st.tuples(st.builds(Endpoint, LISTENERS, HOSTS, st.integers(1, 65535)), PROTOCOLS),
        unique_by=lambda pair: pair[0].listener,
    ),
    rack=st.none() | st.text(),
)
def test_a_broker_is_read_as_it_was_written(endpoints: list[tuple[Endpoint, str]], rack: str | None) -> None:
    node = BrokerNode(endpoints, rack)
    data = node.encode(5)
    assert BrokerNode.decode(data) == node
    value = json.loads(data)
    assert (value["version"], value["timestamp"], value.get("rack")) == (5, "5", rack)
    assert ("rack" in value) == (rack is not None)
    plain = [(endpoint.host, endpoint.port) for endpoint, protocol in endpoints if protocol == "PLAINTEXT"]
    assert (value["host"], value["port"]) == (plain[0] if plain else (None, -1))
