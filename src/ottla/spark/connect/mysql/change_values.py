"""Values of PostgreSQL's changes, as MySQL wants them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from ottla.spark.connect.database import SqlValue


def _without_zone(value: SqlValue) -> SqlValue:
    """In UTC. What is no time is left for the server to refuse."""
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        return value
    if moment.tzinfo is None:
        return value
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(sep=" ")


def _bytes(value: SqlValue) -> SqlValue:
    return bytes.fromhex(value[2:]) if isinstance(value, str) and value.startswith("\\x") else value


CHANGE_CONVERTERS = {
    **dict.fromkeys(("datetime", "timestamp"), _without_zone),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), _bytes),
}
"""By the type of the column."""
