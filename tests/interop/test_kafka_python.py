"""kafka-python against a real broker."""

from __future__ import annotations

import pytest

from tests.interop.contract import ClientContract
from tests.interop.peers.kafka_python import KafkaPython

pytestmark = pytest.mark.interop


class TestKafkaPython(ClientContract):
    peer = KafkaPython()
