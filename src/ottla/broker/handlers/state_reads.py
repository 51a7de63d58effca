"""What handlers that show a coordinator's state share: the answer waits until all it shows is committed.

With one replica that is at once, and nothing but the answer itself is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar, cast

from ottla.base.errors import KafkaError
from ottla.wire.message import Response

T = TypeVar("T")
R = TypeVar("R", bound=Response)


def respond_when_committed(
    answers: list[T | asyncio.Future[T]], assemble: Callable[[list[T]], R]
) -> R | Coroutine[Any, Any, R]:
    """The response made of all answers, once there are all."""
    for answer in answers:
        if isinstance(answer, asyncio.Future):
            return _assemble_later(answers, assemble)
    return assemble(cast(list[T], answers))


async def _assemble_later(answers: Sequence[T | asyncio.Future[T]], assemble: Callable[[list[T]], R]) -> R:
    waiting = iter(await asyncio.gather(*(answer for answer in answers if isinstance(answer, asyncio.Future))))
    return assemble([next(waiting) if isinstance(answer, asyncio.Future) else answer for answer in answers])


def or_refused(answer: asyncio.Future[T], refuse: Callable[[KafkaError], T]) -> asyncio.Future[T]:
    """The answer, or what is said instead if this broker has lost the shard before it could be given."""
    return asyncio.ensure_future(_or_refused(answer, refuse))


async def _or_refused(answer: asyncio.Future[T], refuse: Callable[[KafkaError], T]) -> T:
    try:
        return await answer
    except KafkaError as e:
        return refuse(e)
