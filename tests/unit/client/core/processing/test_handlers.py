"""What may be a handler, and what it may return."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest

from ottla.client.core.processing.handlers import check_handler, check_returned, is_coroutine_function


def plain(record: object) -> None: ...


async def coroutine(record: object) -> None: ...


def generator(record: object) -> Iterator[int]:
    yield 1


async def async_generator(record: object) -> AsyncIterator[int]:
    yield 1


class Plain:
    def __call__(self, record: object) -> None: ...


class Coroutine:
    async def __call__(self, record: object) -> None: ...


class Generator:
    def __call__(self, record: object) -> Iterator[int]:
        yield 1


class AsyncGenerator:
    async def __call__(self, record: object) -> AsyncIterator[int]:
        yield 1


@pytest.mark.parametrize(
    ("handler", "is_coroutine"),
    [
        (plain, False),
        (coroutine, True),
        (Plain(), False),
        (Coroutine(), True),
        (partial(coroutine), True),
        (len, False),
    ],
)
def test_functions_and_coroutines_are_handlers(handler: Any, is_coroutine: bool) -> None:
    check_handler(handler)
    assert is_coroutine_function(handler) is is_coroutine


@pytest.mark.parametrize("handler", [generator, async_generator, Generator(), AsyncGenerator()])
def test_what_yields_is_no_handler(handler: Any) -> None:
    with pytest.raises(TypeError, match="write no yield"):
        check_handler(handler)
    with pytest.raises(TypeError, match="of which nothing has run"):
        check_returned(handler(None))


@pytest.mark.parametrize("returned", [None, 5, [1], iter([1])])
def test_anything_else_may_be_returned(returned: object) -> None:
    check_returned(returned)
