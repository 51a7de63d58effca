"""Fixtures of the interoperability tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.peers.confluent import LOG


@pytest.fixture(autouse=True)
def _librdkafka_understood_all(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A reply librdkafka cannot parse fails the test even if its next attempt went well."""
    yield
    complaints = [record.getMessage() for record in caplog.get_records("call") if record.name == LOG.name]
    assert [complaint for complaint in complaints if "PROTO" in complaint] == []
