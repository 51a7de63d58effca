"""SQL as each kind of database writes it: how names are quoted and how an INSERT settles keys. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


class Dialect:
    """The way of SQLite and PostgreSQL; other databases override what they do differently."""

    quote = '"'
    takes_a_key_twice = False
    """Whether one upsert may hold several rows of a key, of which the last stays."""

    def quoted(self, name: str) -> str:
        return self.quote + name.replace(self.quote, self.quote * 2) + self.quote

    def quoted_table(self, table: str) -> str:
        """A table's name, perhaps after its schema's and a dot."""
        return ".".join(self.quoted(part) for part in table.split(".", 1))

    def quoted_list(self, names: Iterable[str]) -> str:
        return ", ".join(self.quoted(name) for name in names)

    def conflict_clause(self, names: Sequence[str], keys: Sequence[str]) -> str:
        """What an INSERT does about a row whose key is there: replace all other columns."""
        others = [name for name in names if name not in keys]
        if not others:
            return f"ON CONFLICT ({self.quoted_list(keys)}) DO NOTHING"
        changes = ", ".join(f"{self.quoted(name)} = excluded.{self.quoted(name)}" for name in others)
        return f"ON CONFLICT ({self.quoted_list(keys)}) DO UPDATE SET {changes}"

    def insert_into(self, table: str, names: Sequence[str]) -> str:
        """The beginning of an INSERT."""
        return f"INSERT INTO {self.quoted_table(table)} ({self.quoted_list(names)})"

    def insert_statement(self, table: str, names: Sequence[str], keys: Sequence[str] = ()) -> str:
        """Of one row, with `?` for its values; with keys it is an upsert."""
        statement = f"{self.insert_into(table, names)} VALUES ({', '.join('?' * len(names))})"
        return f"{statement} {self.conflict_clause(names, keys)}" if keys else statement

    def create_statement(self, table: str, types: Mapping[str, str], keys: Sequence[str]) -> str:
        parts = [f"{self.quoted(name)} {kind}" for name, kind in types.items()]
        if keys:
            parts.append(f"PRIMARY KEY ({self.quoted_list(keys)})")
        return f"CREATE TABLE IF NOT EXISTS {self.quoted_table(table)} ({', '.join(parts)})"

    def with_format_marks(self, statement: str) -> str:
        """`?` outside of quoted names becomes `%s`, as some drivers want it; their own sign is doubled everywhere."""
        pieces = statement.replace("%", "%%").split(self.quote)
        return self.quote.join(piece if index % 2 else piece.replace("?", "%s") for index, piece in enumerate(pieces))


class MysqlDialect(Dialect):
    quote = "`"
    takes_a_key_twice = True

    def conflict_clause(self, names: Sequence[str], keys: Sequence[str]) -> str:
        """It cannot say which key it means: any unique index counts."""
        # Where there is nothing but keys, one is set to itself: IGNORE would hide every other mistake in the row too.
        others = [name for name in names if name not in keys] or [keys[0]]
        changes = ", ".join(f"{self.quoted(name)} = VALUES({self.quoted(name)})" for name in others)
        return f"ON DUPLICATE KEY UPDATE {changes}"


STANDARD = Dialect()
MYSQL: Dialect = MysqlDialect()
