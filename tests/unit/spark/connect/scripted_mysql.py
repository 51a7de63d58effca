"""A MySQL server that answers what it was told to: for all that is decided on this side of the connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Row = tuple[object, ...]


class Server:
    """`told` are the statements that were sent, each with its parameters if it had any."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, list[Row]]] = []
        self.failures: list[tuple[str, Exception]] = []
        self.told: list[object] = []
        self.opened: list[dict[str, Any]] = []
        self.connections: list[Connection] = []

    def connect(self, **options: Any) -> Connection:
        self.opened.append(options)
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

    def answer(self, statement: str, parameters: Sequence[object]) -> list[Row]:
        self.told.append((statement, *parameters) if parameters else statement)
        self.fail_if_asked(statement)
        return next((rows for part, rows in self.answers if part in statement), [])

    @property
    def statements(self) -> list[object]:
        """Without what is said to every new connection."""
        return [each for each in self.told if "ISOLATION LEVEL" not in str(each)]


class Connection:
    def __init__(self, server: Server) -> None:
        self._server = server
        self.open = True

    def query(self, statement: str | bytes) -> None:
        text = statement if isinstance(statement, str) else statement.decode()
        self._server.answer(text, ())

    def cursor(self, kind: object = None) -> Cursor:
        return Cursor(self._server)

    def commit(self) -> None:
        self._server.answer("COMMIT", ())

    def rollback(self) -> None:
        self._server.answer("ROLLBACK", ())

    def close(self) -> None:
        self._server.answer("CLOSE", ())
        self.open = False


class Cursor:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._rows: list[Row] = []

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *error: object) -> None: ...

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> None:
        self._rows = list(self._server.answer(statement, parameters))

    def executemany(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        for row in rows:
            self._server.answer(statement, row)

    def fetchall(self) -> list[Row]:
        return self._rows

    def fetchmany(self, size: int) -> list[Row]:
        taken, self._rows = self._rows[:size], self._rows[size:]
        return taken
