"""aiokafka against a real broker."""

from __future__ import annotations

import pytest

from tests.interop.contract import ClientContract
from tests.interop.peers.aiokafka_client import Aiokafka

pytestmark = pytest.mark.interop


class TestAiokafka(ClientContract):
    peer = Aiokafka()
    code_of_invalid_record = -1  # it has no name for this error, which is younger than most
