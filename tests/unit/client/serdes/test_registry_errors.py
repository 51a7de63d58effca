"""Which errors of a schema registry pass, and which mean that there is nothing of the kind."""

from __future__ import annotations

import pytest

from ottla.base.errors import ErrorCode
from ottla.client.serdes.registry import SchemaRegistryError


@pytest.mark.parametrize(
    ("status", "retriable"),
    [
        (None, True),
        (400, False),
        (404, False),
        (407, False),
        (408, True),
        (409, False),
        (422, False),
        (429, True),
        (499, False),
        (500, True),
        (503, True),
    ],
)
def test_what_is_worth_another_try(status: int | None, retriable: bool) -> None:
    assert SchemaRegistryError("no", status=status).retriable == retriable


@pytest.mark.parametrize(
    ("error_code", "is_not_found"),
    [(None, False), (404, False), (40400, False), (40401, True), (40402, True), (40403, True), (40404, False)],
)
def test_what_is_not_there(error_code: int | None, is_not_found: bool) -> None:
    assert SchemaRegistryError("no", status=404, error_code=error_code).is_not_found == is_not_found


def test_what_an_error_says() -> None:
    error = SchemaRegistryError("no such subject", status=404, error_code=40401)
    assert (error.message, error.status, error.error_code) == ("no such subject", 404, 40401)
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR, "Kafka has no code for registries"
