"""Addresses of MySQL and MariaDB: `mysql://user:password@host:3306/name?ssl_mode=required`."""

from __future__ import annotations

import os
import ssl
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from ottla.spark.connect.database import DatabaseError, without_password

DEFAULT_PORT = 3306
SSL_MODES = ("disabled", "preferred", "required", "verify_ca", "verify_identity")
"""As MySQL's own programs name them. The last two check the server's certificate, the last also its host name."""
_OPTIONS = ("ssl_mode", "ssl_ca", "ssl_cert", "ssl_key", "unix_socket")


class Address(NamedTuple):
    host: str
    port: int
    user: str
    password: str
    database: str
    options: dict[str, str]
    shown_url: str

    def __repr__(self) -> str:
        return f"Address({self.shown_url!r})"

    @classmethod
    def parse(cls, url: str) -> Address:
        shown_url = without_password(url)
        try:
            parts = urlsplit(url)
            port = parts.port or DEFAULT_PORT
        except ValueError as e:
            raise DatabaseError(f"{shown_url} is no address: {e}") from None
        database = unquote(parts.path.removeprefix("/"))
        if not database:
            raise DatabaseError(f"{shown_url} names no database: write mysql://user@host:{DEFAULT_PORT}/name")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        password = unquote(parts.password or "") or options.pop("password", "") or os.environ.get("MYSQL_PWD", "")
        unknown = [name for name in options if name not in _OPTIONS]
        if unknown:
            raise DatabaseError(f"{shown_url}: there is no option {', '.join(unknown)}; there is {', '.join(_OPTIONS)}")
        mode = options.get("ssl_mode")
        if mode is not None and mode not in SSL_MODES:
            raise DatabaseError(f"{shown_url}: ssl_mode cannot be {mode!r}: it is one of {', '.join(SSL_MODES)}")
        user = unquote(parts.username or "")
        return cls(parts.hostname or "127.0.0.1", port, user, password, database, options, shown_url)

    def driver_options(self) -> dict[str, Any]:
        """For `pymysql.connect`."""
        return {
            "host": self.host,
            "port": self.port,
            "user": self.user or None,
            "password": self.password,
            "database": self.database,
            "unix_socket": self.options.get("unix_socket"),
            **self._tls_options(),
        }

    def _tls_options(self) -> dict[str, Any]:
        # Whoever names a certificate authority wants it to be asked.
        mode = self.options.get("ssl_mode") or ("verify_identity" if "ssl_ca" in self.options else "preferred")
        if mode == "disabled":
            return {"ssl_disabled": True}
        if mode == "preferred":
            # What the driver does by itself: TLS if the server has it.
            return {}
        return {"ssl": self._tls_context(mode)}

    def _tls_context(self, mode: str) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.options.get("ssl_ca"))
            if "ssl_cert" in self.options:
                context.load_cert_chain(self.options["ssl_cert"], self.options.get("ssl_key"))
        except OSError as e:
            raise DatabaseError(f"{self.shown_url}: the certificates cannot be read: {e}") from None
        context.check_hostname = mode == "verify_identity"
        if mode == "required":
            context.verify_mode = ssl.CERT_NONE
        return context
