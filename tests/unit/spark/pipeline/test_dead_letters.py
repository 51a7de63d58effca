"""What is said of a record that could not be read, and what stays of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from ottla.spark.pipeline import dead_letters
from ottla.spark.pipeline.dead_letters import dead_letter_rows
from ottla.spark.pipeline.formats.value_format import ERROR
from tests.unit.spark.pipeline.plain_columns import Frame, use_plain_columns

RECORD = {
    "key": b"k",
    "value": b"\xff",
    "topic": "orders",
    "partition": 3,
    "offset": 17,
    "timestamp": datetime(2026, 1, 1, tzinfo=UTC),
    "headers": None,
    ERROR: "no JSON",
}
TOLD = {
    "topic": b"orders",
    "partition": b"3",
    "offset": b"17",
    "timestamp": b"1767225600000",
    "source": b"source in",
    "error": b"no JSON",
}


@pytest.fixture(autouse=True)
def plain_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    use_plain_columns(monkeypatch, dead_letters)


def letters(*records: dict[str, Any], redrive_topic: str | None = None) -> list[Any]:
    frame: Any = Frame(*records)
    made: Any = dead_letter_rows(frame, source="source in", redrive_topic=redrive_topic)
    assert made.columns == ["key", "value", "headers"]
    return [dict(row) for row in made.rows]


def headers(**values: bytes | None) -> list[dict[str, object]]:
    return [{"key": name.replace("_", "."), "value": value} for name, value in values.items()]


def facts(**others: bytes) -> list[dict[str, object]]:
    return [{"key": f"ottla.dead-letter.{name}", "value": value} for name, value in {**TOLD, **others}.items()]


@pytest.mark.parametrize("redrive_topic", [None, "again"])
@pytest.mark.parametrize("own", [None, [], headers(trace=b"1", empty=None)])
def test_a_letter_is_the_record_and_says_where_it_was(redrive_topic: str | None, own: Any) -> None:
    (letter,) = letters({**RECORD, "headers": own}, redrive_topic=redrive_topic)
    assert letter == {"key": b"k", "value": b"\xff", "headers": [*(own or []), *facts()]}


def test_what_could_be_read_is_no_letter() -> None:
    (letter,) = letters({**RECORD, ERROR: None}, RECORD)
    assert letter["headers"] == facts()


FIRST = {"topic": b"orders", "partition": b"9", "offset": b"99", "timestamp": b"5"}


def test_a_letter_that_came_back_tells_where_it_was_first() -> None:
    again = {**RECORD, "topic": "again", ERROR: "still no JSON"}
    came = [*headers(trace=b"1"), *facts(**FIRST, error=b"of then", source=b"of then")]
    (letter,) = letters({**again, "headers": came}, redrive_topic="again")
    assert letter["headers"] == [*headers(trace=b"1"), *facts(**FIRST, error=b"still no JSON")]


def test_what_a_letter_does_not_tell_is_where_it_is_now() -> None:
    again = {**RECORD, "topic": "again", "headers": facts()[:1]}
    (letter,) = letters(again, redrive_topic="again")
    assert letter["headers"] == facts()
    (letter,) = letters({**again, "headers": None}, redrive_topic="again")
    assert letter["headers"] == facts(topic=b"again")


def test_only_what_comes_from_the_topic_of_the_way_back_is_believed() -> None:
    """Anybody may write such headers to any other."""
    own = facts(**FIRST)
    (letter,) = letters({**RECORD, "headers": own}, redrive_topic="again")
    assert letter["headers"] == [*own, *facts()]
