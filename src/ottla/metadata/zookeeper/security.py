"""How a broker proves to ZooKeeper who it is, who else may use its nodes, and how the way between them is hidden."""

from __future__ import annotations

import importlib.util
import ssl
from typing import Any, NamedTuple

from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from ottla.base.errors import StartError
from ottla.metadata import paths

_SECRET_PATHS = ("/config/users", paths.CONFIG_BROKERS, "/delegation_token")
"""What holds credentials: others may not even read it."""

_OPEN_PATH = "/consumers"
"""Consumers of old wrote there themselves; Kafka leaves it to everybody."""


class Credentials(NamedTuple):
    scheme: str
    """digest: told to ZooKeeper as they are; sasl: proven by DIGEST-MD5."""
    user: str
    password: str


class TlsFiles(NamedTuple):
    """PEM files. Without `trusted` the system's authorities are trusted."""

    certificate: str | None = None
    """With its private key in the same file."""
    password: str | None = None
    trusted: str | None = None
    checks_host_name: bool = True
    min_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    max_version: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED


class Security(NamedTuple):
    restricts_access: bool = False
    """Nodes are made so that only who has the same credentials may change them."""
    credentials: Credentials | None = None
    tls: TlsFiles | None = None

    def acl(self, path: str) -> list[Any]:
        if not self.restricts_access or path == _OPEN_PATH:
            return list(OPEN_ACL_UNSAFE)
        if path.startswith(_SECRET_PATHS):
            return list(CREATOR_ALL_ACL)
        return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]

    @property
    def proves_by_sasl(self) -> bool:
        return self.credentials is not None and self.credentials.scheme == "sasl"

    def client_options(self) -> dict[str, Any]:
        """What kazoo has to know of it."""
        if self.credentials is None:
            return {}
        scheme, user, password = self.credentials
        if scheme == "digest":
            return {"auth_data": [("digest", f"{user}:{password}")]}
        if importlib.util.find_spec("puresasl") is None:
            raise StartError("SASL towards ZooKeeper needs the package pure-sasl: pip install 'ottla[zookeeper]'")
        return {"sasl_options": {"mechanism": "DIGEST-MD5", "username": user, "password": password}}

    def tls_context(self) -> ssl.SSLContext | None:
        if self.tls is None:
            return None
        files = self.tls
        context = ssl.create_default_context()
        context.check_hostname = files.checks_host_name
        context.minimum_version, context.maximum_version = files.min_version, files.max_version
        name = files.trusted
        try:
            if files.trusted is not None:
                context.load_verify_locations(files.trusted)
            name = files.certificate
            if files.certificate is not None:
                context.load_cert_chain(files.certificate, password=files.password)
        except (OSError, ValueError) as e:
            raise StartError(f"the file {name} cannot be used for TLS to ZooKeeper: {e}") from e
        return context
