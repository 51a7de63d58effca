"""Settings that every client has."""

from __future__ import annotations

import pytest

from ottla.base.errors import InvalidConfigError
from ottla.client.core.settings import parse_bootstrap_servers


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        (["a:1"], [("a", 1)]),
        (["a:1", " b:2", ""], [("a", 1), ("b", 2)]),
        (["[::1]:3"], [("::1", 3)]),
        (["host"], [("host", 9092)]),
    ],
)
def test_bootstrap_servers(servers: list[str], expected: list[tuple[str, int]]) -> None:
    assert parse_bootstrap_servers(servers) == expected


@pytest.mark.parametrize("servers", [[], [""], ["a:b"], [":1"], ["a:0"], ["a:65536"], ["a:1", "b:x"]])
def test_bad_bootstrap_servers(servers: list[str]) -> None:
    with pytest.raises(InvalidConfigError, match="host:port"):
        parse_bootstrap_servers(servers)
