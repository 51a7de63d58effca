"""Our error codes against the list that others generated from Kafka's own."""

from __future__ import annotations

from kio.schema.errors import ErrorCode as KioErrorCode

from ottla.base.errors import ERRORS, ErrorCode

YOUNGER = {"INVALID_REGULAR_EXPRESSION": 128, "REBOOTSTRAP_REQUIRED": 129}
"""Codes of Kafka 4, which the list does not have."""


def test_names_and_numbers() -> None:
    ours = {name: int(code) for name, code in ErrorCode.__members__.items()}
    theirs = {name.upper(): code.value for name, code in KioErrorCode.__members__.items()}
    assert ours == theirs | YOUNGER


def test_which_may_be_tried_again() -> None:
    ours = {code.name for code in ErrorCode if ERRORS[code].retriable}
    theirs = {code.name.upper() for code in KioErrorCode if code.retriable}
    assert ours - YOUNGER.keys() == theirs
