"""Which metadata store a broker uses, and with which settings: ZooKeeper's, a local cluster's, or its own."""

from __future__ import annotations

import importlib.util
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.base.errors import StartError
from ottla.broker.config.broker_config import BrokerConfig
from ottla.metadata.embedded import EmbeddedStore
from ottla.metadata.served.client import ServedStore
from ottla.metadata.store import MetadataStore
from ottla.metadata.zookeeper.address import EnsembleAddress

if TYPE_CHECKING:
    from ottla.metadata.zookeeper.security import Security

METADATA_FILE = "ottla-metadata.db"

TLS_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


async def open_store(config: BrokerConfig) -> MetadataStore:
    ensemble = config.optional_text("zookeeper.connect")
    if ensemble is not None:
        return await _open_zookeeper(EnsembleAddress.parse(ensemble), config)
    cluster = config.optional_text("ottla.cluster.dir")
    if cluster is not None:
        timeout_ms = config.integer("zookeeper.session.timeout.ms")
        return await ServedStore.connect(Path(cluster), session_timeout_ms=timeout_ms)
    return await EmbeddedStore.open(metadata_file(config))


def metadata_file(config: BrokerConfig) -> Path:
    directory = config.optional_text("metadata.log.dir")
    return (Path(directory) if directory else config.log_dirs[0]) / METADATA_FILE


async def _open_zookeeper(address: EnsembleAddress, config: BrokerConfig) -> MetadataStore:
    if importlib.util.find_spec("kazoo") is None:
        raise StartError("zookeeper.connect needs the package kazoo: pip install 'ottla[zookeeper]'")
    # Only here: whoever has no ZooKeeper needs no kazoo.
    from ottla.metadata.zookeeper.store import SessionOptions, ZooKeeperStore

    session_timeout_ms = config.integer("zookeeper.session.timeout.ms")
    options = SessionOptions(
        session_timeout_ms=session_timeout_ms,
        connection_timeout_ms=config.optional_integer("zookeeper.connection.timeout.ms") or session_timeout_ms,
        max_in_flight=config.integer("zookeeper.max.in.flight.requests"),
        security=_security(config),
    )
    return await ZooKeeperStore.connect(address, options)


def _security(config: BrokerConfig) -> Security:
    from ottla.metadata.zookeeper.security import Credentials, Security, TlsFiles

    credentials = None
    told = config.secret("ottla.zookeeper.credentials")
    if told is not None:
        user, _, password = told.partition(":")
        credentials = Credentials(config.text("ottla.zookeeper.auth"), user, password)
    tls = None
    if config.flag("zookeeper.ssl.client.enable"):
        named = config["zookeeper.ssl.enabled.protocols"]
        versions = [TLS_VERSIONS[name] for name in named] if isinstance(named, tuple) else []
        tls = TlsFiles(
            certificate=config.optional_text("zookeeper.ssl.keystore.location"),
            password=config.secret("zookeeper.ssl.keystore.password"),
            trusted=config.optional_text("zookeeper.ssl.truststore.location"),
            checks_host_name=config.text("zookeeper.ssl.endpoint.identification.algorithm").upper() == "HTTPS",
            min_version=min(versions, default=ssl.TLSVersion.TLSv1_2),
            max_version=max(versions, default=ssl.TLSVersion.MAXIMUM_SUPPORTED),
        )
    return Security(config.flag("zookeeper.set.acl"), credentials, tls)
