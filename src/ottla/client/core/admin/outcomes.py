"""What comes of an administrative call about several things: a result or an error for each.

One rule for all such calls: they return `Outcomes`. A call itself raises only what keeps it from being made at all.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, Generic, NamedTuple, TypeVar

from ottla.base.errors import ERRORS, ErrorCode
from ottla.client.errors import ClientError
from ottla.wire.message import Request, Response

log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")
E = TypeVar("E", bound=IntEnum)


class Outcomes(Mapping[K, V]):
    """Results by what was asked about. `outcomes[key]` is the result, or raises that thing's error.

    `check()` raises the first error there is. `results` and `errors` are plain dicts of what went well and what did
    not. Errors that nobody has looked at are logged when the object goes away, as asyncio does with its futures.
    """

    def __init__(self, answers: Mapping[K, V | ClientError], *, what: str = "an administrative call") -> None:
        self._results: dict[K, V] = {}
        self._errors: dict[K, ClientError] = {}
        self._what = what
        self._looked_at = False
        for key, answer in answers.items():
            if isinstance(answer, ClientError):
                self._errors[key] = answer
            else:
                self._results[key] = answer

    def __getitem__(self, key: K) -> V:
        if key in self._errors:
            self._looked_at = True
            raise self._errors[key]
        return self._results[key]

    def __iter__(self) -> Iterator[K]:
        yield from self._results
        yield from self._errors

    def __len__(self) -> int:
        return len(self._results) + len(self._errors)

    def __contains__(self, key: object) -> bool:
        return key in self._results or key in self._errors

    def __repr__(self) -> str:
        return f"Outcomes(results={self._results!r}, errors={self._errors!r})"

    @property
    def results(self) -> dict[K, V]:
        """What went well. To read only this is to do without the rest."""
        self._looked_at = True
        return self._results

    @property
    def errors(self) -> dict[K, ClientError]:
        self._looked_at = True
        return self._errors

    def check(self) -> dict[K, V]:
        """All results; raises the first error if there is one."""
        self._looked_at = True
        for error in self._errors.values():
            raise error
        return self._results

    def __del__(self) -> None:
        if not self._looked_at and self._errors:
            told = "; ".join(str(error) for error in self._errors.values())
            log.warning("%s failed in part, and nobody looked at the errors: %s", self._what, told)


class Call(NamedTuple, Generic[K, V]):
    """One kind of request about many things: how it is built in a version, and what a reply says of each thing."""

    name: str
    request: type[Request]
    response: type[Response]
    build: Callable[[Sequence[K], int], Request]
    read: Callable[[Any], Mapping[K, V | ClientError] | list[V | ClientError] | ClientError]
    """By thing; a list in the order of the request if a reply names no things; one error if it is that of them all."""
    max_version: int | None = None
    """For requests whose newer versions mean something else."""

    def answers(self, asked: Sequence[K], response: Response) -> dict[K, V | ClientError]:
        """What a reply says of each thing that was asked about."""
        said = self.read(response)
        if isinstance(said, ClientError):
            return dict.fromkeys(asked, said)
        if isinstance(said, Mapping):
            return dict(said)
        if len(said) != len(asked):
            # Which of them are answered cannot be known.
            text = f"the broker was asked about {len(asked)} things and answered about {len(said)}"
            return dict.fromkeys(asked, admin_error(ErrorCode.UNKNOWN_SERVER_ERROR, text))
        return {
            key: admin_error(answer.code, answer.message, where=key) if isinstance(answer, ClientError) else answer
            for key, answer in zip(asked, said, strict=True)
        }


def admin_error(code: int, message: str | None = None, *, where: object = "") -> ClientError:
    """The error of one thing; never `fatal`, for the client can go on with others."""
    try:
        known = ErrorCode(code)
    except ValueError:
        known = ErrorCode.UNKNOWN_SERVER_ERROR
        message = message or f"error code {code}, which this version does not know"
    text = message or ERRORS[known].message
    place = str(where)
    if place and not (message and _names(message, place.split()[-1])):
        text = f"{place}: {text}"
    error = ClientError(text, code=known)
    error.broker_message = message
    return error


def _names(message: str, name: str) -> bool:
    """Whether a broker's own words name the thing already."""
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", message) is not None


def outcome(code: int, value: V, message: str | None = None, *, where: object = "") -> V | ClientError:
    return admin_error(code, message, where=where) if code else value


def known(kind: type[E], number: int) -> E:
    """What a broker's number means; UNKNOWN if only a newer version would know."""
    try:
        return kind(number)
    except ValueError:
        return kind["UNKNOWN"]


FINAL = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    }
)
"""Retriable for producers and consumers; who administers a topic wants to know that it, or a replica, is not there, and
that there was no election."""

GRACE_TRIES = 3
"""How often leaders are looked for again of a topic that is not known: one made just now may not be known to all."""


def tries_again(error: ClientError, tries: int, *, grace: bool) -> bool:
    """Whether to ask again about something that has failed `tries` times. The time allowed is the shell's business."""
    if error.code in FINAL:
        return grace and tries <= GRACE_TRIES
    return error.retriable
