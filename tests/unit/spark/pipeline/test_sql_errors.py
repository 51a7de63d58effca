"""What is told of a query that Spark refuses: the relation that is missing, and the line."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from ottla.spark.pipeline.sql_errors import NOT_FOUND, line_of, missing_relation


class RefusalError(Exception):
    def __init__(self, text: str = "", condition: str | None = None, parameters: dict[str, str] | None = None) -> None:
        super().__init__(text)
        self._condition, self._parameters = condition, parameters

    def getCondition(self) -> str | None:
        return self._condition

    def getMessageParameters(self) -> dict[str, str] | None:
        return self._parameters


@pytest.mark.parametrize(
    ("condition", "parameters", "name"),
    [
        (NOT_FOUND, {"relationName": "`shop`.`orders`"}, "shop.orders"),
        (NOT_FOUND, {}, ""),
        (NOT_FOUND, None, ""),
        ("PARSE_SYNTAX_ERROR", {"relationName": "`orders`"}, None),
        (None, None, None),
    ],
)
def test_the_relation_that_is_missing(
    condition: str | None, parameters: dict[str, str] | None, name: str | None
) -> None:
    error: Any = RefusalError("", condition, parameters)
    assert missing_relation(error) == name


@pytest.mark.parametrize(
    ("text", "line"), [("at x (line 3, pos 7)", 3), ("at x; line 4 pos 7", 4), ("no place is named", 1)]
)
def test_the_line_that_is_meant(text: str, line: int) -> None:
    error: Any = RefusalError(text)
    assert line_of(error) == line
