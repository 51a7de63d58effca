"""Outcomes of administrative calls: how they are read, and what is said of errors that nobody has looked at."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

from ottla.base.acls import AclOperation
from ottla.base.errors import ErrorCode
from ottla.client.core.admin import outcomes as module
from ottla.client.core.admin.outcomes import (
    FINAL,
    GRACE_TRIES,
    Call,
    Outcomes,
    admin_error,
    known,
    outcome,
    tries_again,
)
from ottla.client.errors import ClientError
from ottla.wire.apis.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tests.log_lines import messages_of

NO = ClientError("no", code=ErrorCode.INVALID_REQUEST)


def mixed() -> Outcomes[str, int]:
    return Outcomes({"a": 1, "b": NO, "c": 3}, what="to try")


def test_results_and_errors_are_told_apart() -> None:
    found = mixed()
    assert found["a"] == 1 and list(found) == ["a", "c", "b"] and len(found) == 3
    with pytest.raises(ClientError) as raised:
        found["b"]
    assert raised.value is NO
    with pytest.raises(KeyError):
        found["d"]
    assert "b" in found and "a" in found and "d" not in found
    assert found.results == {"a": 1, "c": 3} and found.errors == {"b": NO}
    with pytest.raises(ClientError) as raised:
        found.check()
    assert raised.value is NO
    assert Outcomes({"a": 1}).check() == {"a": 1}
    assert repr(found) == f"Outcomes(results={{'a': 1, 'c': 3}}, errors={{'b': {NO!r}}})"


@pytest.mark.parametrize(
    ("look", "is_told"),
    [
        (lambda found: None, True),
        (lambda found: found["a"], True),
        (len, True),
        (list, True),
        (lambda found: "b" in found, True),
        (lambda found: found.get("b"), False),
        (lambda found: found.results, False),
        (lambda found: found.errors, False),
        (lambda found: found.check(), False),
    ],
)
def test_errors_that_nobody_has_looked_at_are_told_of(
    look: Callable[[Any], object], is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    found = mixed()
    try:
        look(found)
    except ClientError as e:
        e.__traceback__ = None
    del found
    gc.collect()
    expected = "to try failed in part, and nobody looked at the errors: INVALID_REQUEST: no"
    assert messages_of(caplog, module.__name__) == ([expected] if is_told else [])


def test_of_what_went_well_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    Outcomes({"a": 1})
    gc.collect()
    assert messages_of(caplog, module.__name__) == []


@pytest.mark.parametrize(
    ("code", "message", "where", "expected"),
    [
        (ErrorCode.INVALID_REQUEST, "too many", "", "too many"),
        (ErrorCode.INVALID_REQUEST, "too many", "topic t", "topic t: too many"),
        (ErrorCode.INVALID_REQUEST, "topic t has too many", "topic t", "topic t has too many"),
        (ErrorCode.INVALID_REQUEST, "topic t-1 has too many", "topic t", "topic t: topic t-1 has too many"),
        (ErrorCode.INVALID_REQUEST, "topic t.x has too many", "topic t", "topic t: topic t.x has too many"),
        (ErrorCode.INVALID_REQUEST, "at t", "topic t", "at t"),
        (999, None, "", "error code 999, which this version does not know"),
        (999, "said so", "", "said so"),
    ],
)
def test_an_error_names_what_it_is_about_once(code: int, message: str | None, where: str, expected: str) -> None:
    error = admin_error(code, message, where=where)
    assert error.message == expected and not error.fatal
    assert error.code is (ErrorCode.UNKNOWN_SERVER_ERROR if code == 999 else code)
    if code != 999:
        assert error.broker_message == message


def test_without_words_of_the_brokers_an_error_has_its_own() -> None:
    error = admin_error(ErrorCode.GROUP_ID_NOT_FOUND, where="group g")
    assert error.message.startswith("group g: ") and error.broker_message is None
    assert outcome(0, 5) == 5
    refused = outcome(ErrorCode.GROUP_ID_NOT_FOUND, 5, "gone", where="g")
    assert isinstance(refused, ClientError) and refused.message == "g: gone"


def test_numbers_that_only_a_newer_version_knows() -> None:
    assert known(AclOperation, AclOperation.READ) is AclOperation.READ
    assert known(AclOperation, 99) is AclOperation.UNKNOWN


@pytest.mark.parametrize("code", sorted(FINAL))
def test_what_an_administrator_wants_to_know_is_not_asked_again(code: ErrorCode) -> None:
    error = ClientError(code=code)
    assert not tries_again(error, 1, grace=False)
    assert [tries_again(error, tries, grace=True) for tries in (1, GRACE_TRIES, GRACE_TRIES + 1)] == [True, True, False]


@pytest.mark.parametrize(
    ("code", "again"),
    [
        (ErrorCode.NOT_CONTROLLER, True),
        (ErrorCode.REQUEST_TIMED_OUT, True),
        (ErrorCode.INVALID_REQUEST, False),
        (ErrorCode.GROUP_ID_NOT_FOUND, False),
    ],
)
def test_what_may_pass_is_asked_again_however_often(code: ErrorCode, again: bool) -> None:
    for grace in (True, False):
        assert tries_again(ClientError(code=code), 99, grace=grace) is again


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"a": 1}, {"a": 1}),
        ([1, 2], {"a": 1, "b": 2}),
        (NO, {"a": NO, "b": NO}),
    ],
)
def test_answers_are_by_thing(said: Any, expected: dict[str, Any]) -> None:
    call: Call[str, Any] = Call("try", DeleteGroupsRequest, DeleteGroupsResponse, lambda *_: None, lambda _: said)  # type: ignore[arg-type]
    assert call.answers(["a", "b"], DeleteGroupsResponse()) == expected
    assert call.max_version is None


def test_answers_in_the_order_of_the_questions_are_named() -> None:
    call: Call[str, Any] = Call("try", DeleteGroupsRequest, DeleteGroupsResponse, lambda *_: None, lambda _: [1, NO])  # type: ignore[arg-type]
    answers = call.answers(["a", "b"], DeleteGroupsResponse())
    assert answers["a"] == 1 and answers["b"].message == "b: no" and answers["b"].code is ErrorCode.INVALID_REQUEST
    for error in call.answers(["a", "b", "c"], DeleteGroupsResponse()).values():
        assert error.message == "the broker was asked about 3 things and answered about 2"
        assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    ],
)
def test_what_is_not_there_is_looked_for_three_times_more_at_most(code: ErrorCode) -> None:
    error = ClientError(code=code)
    assert [tries_again(error, tries, grace=True) for tries in range(1, 6)] == [True, True, True, False, False]
    assert not any(tries_again(error, tries, grace=False) for tries in range(1, 6))
