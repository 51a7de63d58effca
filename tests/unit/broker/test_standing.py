"""Whether its peers still count on a broker whose own session is out of reach."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.standing import ask_peers
from ottla.wire.apis.metadata import MetadataRequest, MetadataResponse
from tests.waiting import run_async

OWN = 1
AWAY = [KafkaError(code=ErrorCode.NETWORK_EXCEPTION), OSError("gone")]


@pytest.mark.parametrize(
    ("answers", "is_given_up"),
    [
        ({}, False),
        ({2: [2, 3]}, True),
        ({2: [1, 2]}, False),
        ({2: [2, 1, 3]}, False),
        ({2: []}, False),
        ({2: AWAY[0]}, False),
        ({2: AWAY[1]}, False),
        ({2: AWAY[0], 3: [2, 3], 4: [1, 2, 3, 4]}, True),
        ({2: [1, 2], 3: AWAY[1]}, False),
    ],
)
def test_one_peer_that_knows_of_others_only_is_enough(answers: dict[int, Any], is_given_up: bool) -> None:
    asked: list[int] = []

    async def request(peer: int, message: MetadataRequest, kind: type, *, work: str, timeout_ms: int) -> Any:
        asked.append(peer)
        assert (message.topics, message.allow_auto_topic_creation, kind) == ([], False, MetadataResponse)
        assert (work, timeout_ms) == ("standing", 2000)
        answer = answers[peer]
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(brokers=[SimpleNamespace(node_id=known) for known in answer])

    image: Any = SimpleNamespace(brokers=[OWN, *answers])
    peers: Any = SimpleNamespace(request=request)

    async def ask() -> bool:
        return await ask_peers(OWN, image, peers)()

    assert run_async(ask()) is is_given_up
    assert sorted(asked) == sorted(answers)
