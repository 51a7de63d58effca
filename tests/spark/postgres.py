"""A real PostgreSQL for tests: its own data directory, a free port, stopped by its process id."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30
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


class PostgresProcess:
    """One server with logical decoding switched on. It refuses to run as root, so root hands it to `postgres`."""

    def __init__(self, binaries: Path, directory: Path) -> None:
        self.binaries = binaries
        self.directory = directory
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://ottla@127.0.0.1:{self.port}/postgres"

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(self.url, autocommit=True)

    def start(self) -> PostgresProcess:
        data = self.directory / "data"
        if not data.exists():
            if os.geteuid() == 0:
                account = pwd.getpwnam(SYSTEM_USER)
                os.chown(self.directory, account.pw_uid, account.pw_gid)
            initdb = [str(self.binaries / "initdb"), "-D", str(data), "-U", "ottla", "-A", "trust", "-E", "UTF8"]
            self._run([*initdb, "--no-locale", "--no-sync"])
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "wal_level": "logical",
            "fsync": "off",
            "full_page_writes": "off",
            "max_connections": "50",
            "timezone": "UTC",
        }
        command = [str(self.binaries / "postgres"), "-D", str(data), "-p", str(self.port)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                _as_server_user(command), stdout=log, stderr=log, cwd="/", start_new_session=True
            )
        self._wait_until_ready()
        return self

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(
            _as_server_user(command), capture_output=True, text=True, cwd="/", timeout=START_TIMEOUT_S, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self.connect().close()
                return
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    log = (self.directory / "server.log").read_text()
                    raise RuntimeError(f"PostgreSQL did not start:\n{log}") from None
                time.sleep(0.1)

    def stop(self) -> None:
        """SIGINT is its fast shutdown: sessions are ended, the data directory is left clean."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_TIMEOUT_S)


def _as_server_user(command: list[str]) -> list[str]:
    if os.geteuid() != 0:
        return command
    return ["setpriv", f"--reuid={SYSTEM_USER}", f"--regid={SYSTEM_USER}", "--init-groups", *command]


def _free_port() -> int:
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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
