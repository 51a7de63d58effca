"""A real MariaDB for tests."""

from __future__ import annotations

import getpass
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests.spark.database_process import DatabaseProcess

USER, PASSWORD, DATABASE = "ottla", "s3cret/+", "shop"


def find_programs() -> tuple[str, str] | None:
    """mariadb-install-db and mariadbd; Debian puts the server where only root looks."""
    path = "/usr/local/sbin:/usr/sbin:/usr/local/bin:/usr/bin"
    install, server = (
        shutil.which(name) or shutil.which(name, path=path) for name in ("mariadb-install-db", "mariadbd")
    )
    if install is None or server is None or shutil.which("my_print_defaults", path=path) is None:
        return None
    return install, server


class MariadbProcess(DatabaseProcess):
    """One server with a user that has a password, and writes to the disk only when it has to."""

    def __init__(self, programs: tuple[str, str], directory: Path) -> None:
        super().__init__(directory)
        self._install, self._server = programs

    @property
    def url(self) -> str:
        return f"mysql://{USER}:s3cret%2F%2B@127.0.0.1:{self.port}/{DATABASE}"

    def connect(self, **options: Any) -> pymysql.Connection[Any]:
        settings = {"host": "127.0.0.1", "port": self.port, "user": USER, "password": PASSWORD, "database": DATABASE}
        return pymysql.connect(
            **{
                "charset": "utf8mb4",
                "autocommit": True,
                "init_command": "SET time_zone = '+00:00'",
                **settings,
                **options,
            }
        )

    def rows(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(query, parameters or None)
            return list(cursor.fetchall())

    def answers(self) -> bool:
        try:
            self.connect().close()
        except pymysql.OperationalError:
            return False
        return True

    @property
    def certificate(self) -> Path:
        """The server's, signed by itself; there is one if there is an openssl to make it."""
        return self.directory / "server.pem"

    def _make_certificate(self) -> None:
        if shutil.which("openssl") is None:
            return
        made = ["-keyout", str(self.directory / "server.key"), "-out", str(self.certificate)]
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        name = ["-subj", "/CN=ottla-test", "-addext", "subjectAltName=IP:127.0.0.1"]
        self.run(["openssl", "req", "-x509", *curve, *name, *made])

    def prepare(self) -> None:
        self._make_certificate()
        self.run(
            [
                self._install,
                "--no-defaults",
                f"--datadir={self.data}",
                f"--user={getpass.getuser()}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ]
        )
        (self.directory / "init.sql").write_text(
            f"CREATE DATABASE IF NOT EXISTS {DATABASE};\n"
            f"CREATE USER IF NOT EXISTS {USER}@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL ON *.* TO {USER}@'127.0.0.1' WITH GRANT OPTION;\n"
        )

    def command(self) -> list[str]:
        tls = [f"--ssl-cert={self.certificate}", f"--ssl-key={self.directory / 'server.key'}"]
        return [
            self._server,
            "--no-defaults",
            f"--datadir={self.data}",
            # Root has to be named, or the server refuses to run as such.
            f"--user={getpass.getuser()}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            f"--socket={self.directory / 'server.sock'}",
            f"--pid-file={self.directory / 'server.pid'}",
            f"--init-file={self.directory / 'init.sql'}",
            # Kept in the system's memory at each commit: it outlives a killed server, though not a machine.
            "--innodb-flush-log-at-trx-commit=2",
            "--innodb-buffer-pool-size=64M",
            # Unlike ours: sessions must not depend on it.
            "--default-time-zone=+05:00",
            "--character-set-server=latin1",
            *(tls if self.certificate.exists() else []),
        ]


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariadbProcess]:
    """One server for all tests of a worker; they use tables of their own."""
    programs = find_programs()
    if programs is None:
        pytest.skip("MariaDB's server programs are not installed (Debian: mariadb-server-core, mariadb-client-core)")
    # Not below pytest's own directory: a socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="ottla-mariadb-", ignore_cleanup_errors=True) as directory:
        server = MariadbProcess(programs, Path(directory)).start()
        yield server
        server.stop()
