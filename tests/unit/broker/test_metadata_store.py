"""Which store a broker opens, and what is said if it cannot."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import StartError
from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.metadata_store import _security, metadata_file, open_store
from ottla.metadata.zookeeper.address import EnsembleAddress
from ottla.metadata.zookeeper.security import Credentials, Security, TlsFiles
from ottla.metadata.zookeeper.store import SessionOptions, ZooKeeperStore
from tests.waiting import run_async


def test_without_kazoo_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kazoo", None)
    with pytest.raises(
        StartError, match=r"zookeeper\.connect needs the package kazoo: pip install 'ottla\[zookeeper\]'"
    ):
        run_async(open_store(BrokerConfig({"zookeeper.connect": "127.0.0.1:1"})))


def test_a_file_of_its_own_lies_where_the_settings_say() -> None:
    assert metadata_file(BrokerConfig({"log.dirs": "/a,/b"})) == Path("/a/ottla-metadata.db")
    assert metadata_file(BrokerConfig({"log.dirs": "/a", "metadata.log.dir": "/m"})) == Path("/m/ottla-metadata.db")


def test_settings_of_security_reach_zookeeper() -> None:
    assert _security(BrokerConfig({"zookeeper.connect": "z"})) == Security()
    settings = {
        "zookeeper.connect": "z",
        "zookeeper.set.acl": "true",
        "ottla.zookeeper.credentials": "user:pass:word",
        "ottla.zookeeper.auth": "sasl",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.keystore.location": "/own.pem",
        "zookeeper.ssl.keystore.password": "secret",
        "zookeeper.ssl.truststore.location": "/ca.pem",
        "zookeeper.ssl.endpoint.identification.algorithm": "",
        "zookeeper.ssl.enabled.protocols": "TLSv1.3",
    }
    found = _security(BrokerConfig(settings))
    assert found.restricts_access and found.credentials == Credentials("sasl", "user", "pass:word")
    tls = found.tls
    assert tls is not None and tls[:4] == TlsFiles("/own.pem", "secret", "/ca.pem", checks_host_name=False)[:4]
    assert tls.min_version == tls.max_version and tls.min_version.name == "TLSv1_3"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, (18_000, 18_000, 10)),
        ({"zookeeper.session.timeout.ms": "7"}, (7, 7, 10)),
        (
            {
                "zookeeper.session.timeout.ms": "7",
                "zookeeper.connection.timeout.ms": "8",
                "zookeeper.max.in.flight.requests": "9",
            },
            (7, 8, 9),
        ),
    ],
)
def test_settings_of_sessions_reach_zookeeper(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], expected: tuple[int, int, int]
) -> None:
    asked: list[Any] = []

    async def connect(address: EnsembleAddress, options: SessionOptions) -> Any:
        asked.append((address, options))
        return "the store"

    monkeypatch.setattr(ZooKeeperStore, "connect", connect)
    given = {"zookeeper.connect": "a:1,b:2/kafka", "ottla.zookeeper.credentials": "user:word", **settings}
    opened: Any = run_async(open_store(BrokerConfig(given)))
    assert opened == "the store"
    security = Security(credentials=Credentials("digest", "user", "word"))
    assert asked == [(EnsembleAddress.parse("a:1,b:2/kafka"), SessionOptions(*expected, security))]
