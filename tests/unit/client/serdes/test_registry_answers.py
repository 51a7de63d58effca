"""Which address of a registry is asked, what with, and what is made of whatever answers there."""

from __future__ import annotations

import io
import json
import urllib.request
from email.message import Message
from http.client import BadStatusLine
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError

import pytest

from ottla.client.serdes.registry import SchemaRegistry, SchemaRegistryError, _origin

FINE = b'{"schema": "s"}'
FIRST, SECOND = "http://a:1", "http://b:2"


class Refused(NamedTuple):
    status: int
    body: bytes


class Line:
    """In place of the network: one answer after the other, and what was asked."""

    def __init__(self, *answers: bytes | Exception | Refused) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[urllib.request.Request, float]] = []

    def open(self, request: urllib.request.Request, timeout: float) -> Any:
        self.asked.append((request, timeout))
        answer = self.answers.pop(0)
        if isinstance(answer, Refused):
            raise HTTPError(request.full_url, answer.status, "Reason", Message(), io.BytesIO(answer.body))
        if isinstance(answer, Exception):
            raise answer
        return io.BytesIO(answer)


def registry(*answers: bytes | Exception | Refused, **options: Any) -> tuple[SchemaRegistry, Line]:
    made = SchemaRegistry([FIRST, f" {SECOND}/ "], **options)
    line = Line(*answers)
    made._opener = line  # type: ignore[assignment]
    return made, line


@pytest.mark.parametrize(
    "first",
    [
        Refused(500, b"<html>"),
        Refused(503, b'{"error_code": 50003, "message": "Not now"}'),
        URLError("refused"),
        OSError("away"),
        BadStatusLine("?"),
        b"<html>",
        b"[1]",
        b"5",
    ],
    ids=str,
)
def test_where_nothing_of_use_answers_the_next_address_is_asked(first: bytes | Exception | Refused) -> None:
    made, line = registry(first, FINE)
    assert made.schema(7).text == "s"
    assert [request.full_url for request, _ in line.asked] == [f"{FIRST}/schemas/ids/7", f"{SECOND}/schemas/ids/7"]
    assert made.schema(7).text == "s" and len(line.asked) == 2


@pytest.mark.parametrize(
    ("answer", "message", "status", "error_code"),
    [
        (
            Refused(404, b'{"error_code": 40403, "message": "Schema not found"}'),
            "schema id 7: the schema registry at http://a:1 answered 404: Schema not found",
            404,
            40403,
        ),
        (
            Refused(422, b'{"message": "Odd"}'),
            "schema id 7: the schema registry at http://a:1 answered 422: Odd",
            422,
            None,
        ),
        (Refused(499, b"<html>"), "schema id 7: the schema registry at http://a:1 answered 499: Reason", 499, None),
        (
            Refused(400, b'{"error_code": 5}'),
            "schema id 7: the schema registry at http://a:1 answered 400: Reason",
            400,
            None,
        ),
        (Refused(400, b"[]"), "schema id 7: the schema registry at http://a:1 answered 400: Reason", 400, None),
    ],
)
def test_a_refusal_is_the_registrys_answer_and_nobody_else_is_asked(
    answer: Refused, message: str, status: int, error_code: int | None
) -> None:
    made, line = registry(answer, FINE)
    with pytest.raises(SchemaRegistryError) as raised:
        made.schema(7)
    error = raised.value
    assert (error.message, error.status, error.error_code) == (message, status, error_code)
    assert error.is_not_found == (error_code == 40403) and not error.retriable and len(line.asked) == 1
    assert error.__cause__ is None


@pytest.mark.parametrize(
    ("last", "message", "status"),
    [
        (Refused(500, b""), "subject t: the schema registry at http://b:2 answered 500: Reason", 500),
        (URLError("refused"), "subject t: the schema registry at http://b:2 cannot be reached: refused", None),
        (OSError("away"), "subject t: the schema registry at http://b:2 cannot be reached: away", None),
        (b"[]", "subject t: what answers at http://b:2 is no schema registry", None),
        (b"{", "subject t: what answers at http://b:2 is no schema registry: Expecting", None),
    ],
    ids=str,
)
def test_if_nobody_answers_the_last_failure_is_told(
    last: bytes | Exception | Refused, message: str, status: int | None
) -> None:
    made, line = registry(OSError("first"), last)
    with pytest.raises(SchemaRegistryError) as raised:
        made.latest("t")
    assert raised.value.message.startswith(message) and raised.value.status == status
    assert raised.value.retriable and len(line.asked) == 2


def test_a_question_is_put_as_registries_want_it() -> None:
    made, line = registry(b'{"id": 5}', FINE, timeout_ms=1500, auth=("me", "secret"))
    assert made.register("t/v", '"string"', schema_type="JSON") == 5
    made.schema(1)
    (posted, timeout_s), (got, _) = line.asked
    assert timeout_s == 1.5
    assert (posted.get_method(), posted.full_url) == ("POST", f"{FIRST}/subjects/t%2Fv/versions")
    assert isinstance(posted.data, bytes)
    assert json.loads(posted.data) == {"schema": '"string"', "schemaType": "JSON"}
    assert (got.get_method(), got.data) == ("GET", None)
    kind = "application/vnd.schemaregistry.v1+json"
    for request in (posted, got):
        assert request.headers == {
            "Accept": f"{kind}, application/json",
            "Content-type": kind,
            "Authorization": "Basic bWU6c2VjcmV0",
        }


def test_without_credentials_none_are_sent_and_an_answer_has_ten_seconds() -> None:
    made, line = registry(FINE)
    made.schema(1)
    ((request, timeout_s),) = line.asked
    assert timeout_s == 10 and "Authorization" not in request.headers


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("http://h/a", "http://h:80/b", True),
        ("https://h/a", "https://h:443/b", True),
        ("http://h/a", "http://h/b?c", True),
        ("http://h", "https://h", False),
        ("http://h:443", "https://h:443", False),
        ("http://h", "http://i", False),
        ("http://h:1", "http://h:2", False),
        ("http://h", "http://h:443", False),
        ("https://h", "https://h:80", False),
    ],
)
def test_credentials_are_for_one_scheme_host_and_port(one: str, other: str, is_same: bool) -> None:
    assert (_origin(one) == _origin(other)) is is_same


@pytest.mark.parametrize(("user", "auth"), [("me", None), (None, ("me", "secret")), ("me", ("me", "secret"))])
def test_credentials_that_are_given_twice_have_to_be_the_same(user: str | None, auth: tuple[str, str] | None) -> None:
    url = "http://h:1" if user is None else f"http://{user}:secret@h:1"
    made = SchemaRegistry(url, auth=auth)
    assert made._headers["Authorization"] == "Basic bWU6c2VjcmV0" and made._urls == ["http://h:1"]
