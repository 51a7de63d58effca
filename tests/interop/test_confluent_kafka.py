"""confluent-kafka against a real broker."""

from __future__ import annotations

import pytest

from tests.interop.contract import ClientContract
from tests.interop.peers.confluent import ConfluentKafka

pytestmark = pytest.mark.interop


class TestConfluentKafka(ClientContract):
    peer = ConfluentKafka()
