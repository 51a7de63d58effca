"""kcat against a real broker."""

from __future__ import annotations

import pytest

from tests.interop.contract import ClientContract
from tests.interop.peers.kcat import Kcat

pytestmark = pytest.mark.interop


class TestKcat(ClientContract):
    peer = Kcat()
