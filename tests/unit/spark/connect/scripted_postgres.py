"""A PostgreSQL server that answers what it was told to: for all that is decided on this side of the connection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

Row = tuple[object, ...]


class Server:
    """`told` are the statements that were sent, each with its parameters if it had any; `copied` is what was copied."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, list[Row]]] = []
        self.failures: list[tuple[str, Exception]] = []
        self.told: list[object] = []
        self.copied = b""
        self.opened: list[tuple[str, dict[str, Any]]] = []
        self.connections: list[Connection] = []

    def connect(self, url: str, **options: Any) -> Connection:
        self.opened.append((url, options))
        self.fail_if_asked("connect")
        self.connections.append(Connection(self))
        return self.connections[-1]

    def says(self, part: str, *rows: Row) -> None:
        """From now on, to queries with this in them."""
        self.answers.insert(0, (part, list(rows)))

    def fails(self, part: str, error: Exception) -> None:
        """Once, when it is sent something with this in it."""
        self.failures.append((part, error))

    def fail_if_asked(self, statement: str) -> None:
        for failure in self.failures:
            if failure[0] in statement:
                self.failures.remove(failure)
                raise failure[1]

    def answer(self, statement: str | bytes, parameters: Sequence[object] = ()) -> list[Row]:
        text = statement if isinstance(statement, str) else statement.decode()
        self.told.append((text, *parameters) if parameters else text)
        self.fail_if_asked(text)
        return next((rows for part, rows in self.answers if part in text), [])

    @property
    def statements(self) -> list[object]:
        """Without what is said to every new connection."""
        return [each for each in self.told if "client_encoding" not in str(each)]


class Connection:
    """As a block it commits or rolls back, and is closed at the end."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.closed = False

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._server.told.append("COMMIT" if kind is None else "ROLLBACK")
        self.close()

    def execute(self, statement: str | bytes, parameters: Sequence[object] = ()) -> Cursor:
        return Cursor(self._server).execute(statement, parameters)

    def cursor(self, name: str = "") -> Cursor:
        return Cursor(self._server, name)

    def close(self) -> None:
        self._server.told.append("CLOSE")
        self.closed = True


class Cursor:
    def __init__(self, server: Server, name: str = "") -> None:
        self._server = server
        self._rows: list[Row] = []
        self._stays_on_server = bool(name)

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *error: object) -> None: ...

    def execute(self, statement: str | bytes, parameters: Sequence[object] = ()) -> Cursor:
        self._rows = list(self._server.answer(statement, parameters))
        return self

    def executemany(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        for row in rows:
            self._server.answer(statement, row)

    def fetchall(self) -> list[Row]:
        return self._rows

    def fetchone(self) -> Row | None:
        return self._rows[0] if self._rows else None

    def fetchmany(self, size: int) -> list[Row]:
        assert self._stays_on_server, "otherwise all rows are in memory before the first is seen"
        taken, self._rows = self._rows[:size], self._rows[size:]
        return taken

    @contextmanager
    def copy(self, statement: bytes) -> Iterator[Cursor]:
        self._server.answer(statement)
        yield self

    def write(self, data: Any) -> None:
        self._server.copied += bytes(data)
