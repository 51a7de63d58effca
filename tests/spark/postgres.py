"""A real PostgreSQL for tests."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.spark.database_process import START_TIMEOUT_S, DatabaseProcess

SYSTEM_USER = "postgres"


def find_binaries() -> Path | None:
    """Where initdb and postgres are: asked of pg_config, else looked for where Debian puts them."""
    candidates = []
    if shutil.which("pg_config"):
        answer = subprocess.run(
            ["pg_config", "--bindir"], capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False
        )
        candidates.append(Path(answer.stdout.strip()))
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((found for found in candidates if (found / "initdb").exists() and (found / "postgres").exists()), None)


class PostgresProcess(DatabaseProcess):
    """One server with logical decoding switched on. It refuses to run as root, so root hands it to `postgres`."""

    stop_signal = signal.SIGINT

    def __init__(self, binaries: Path, directory: Path) -> None:
        super().__init__(directory)
        self.binaries = binaries

    @property
    def url(self) -> str:
        return f"postgresql://ottla@127.0.0.1:{self.port}/postgres"

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(self.url, autocommit=True)

    def rows(self, query: str, *parameters: object) -> list[tuple[object, ...]]:
        with self.connect() as connection:
            return connection.execute(query.encode(), parameters or None).fetchall()

    def answers(self) -> bool:
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def prepare(self) -> None:
        if os.geteuid() == 0:
            account = pwd.getpwnam(SYSTEM_USER)
            os.chown(self.directory, account.pw_uid, account.pw_gid)
        initdb = [str(self.binaries / "initdb"), "-D", str(self.data), "-U", "ottla", "-A", "trust", "-E", "UTF8"]
        self.run(_as_server_user([*initdb, "--no-locale", "--no-sync"]))

    def command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "wal_level": "logical",
            "fsync": "off",
            "full_page_writes": "off",
            "max_connections": "50",
            "timezone": "UTC",
        }
        command = [str(self.binaries / "postgres"), "-D", str(self.data), "-p", str(self.port)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        return _as_server_user(command)


def _as_server_user(command: list[str]) -> list[str]:
    if os.geteuid() != 0:
        return command
    return ["setpriv", f"--reuid={SYSTEM_USER}", f"--regid={SYSTEM_USER}", "--init-groups", *command]


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresProcess]:
    """One server for all tests of a worker; they use tables, slots and publications of their own."""
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("PostgreSQL's server programs are not installed (Debian: postgresql)")
    # Not below pytest's own directory: that one is closed to other users, and the server is one.
    with tempfile.TemporaryDirectory(prefix="ottla-postgres-", ignore_cleanup_errors=True) as directory:
        server = PostgresProcess(binaries, Path(directory)).start()
        yield server
        server.stop()
