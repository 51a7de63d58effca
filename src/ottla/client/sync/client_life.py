"""The life of a client for threads with another one, for asyncio, inside: closed once, and never used after a fork."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, ClassVar, Self, TypeVar

from ottla.client.errors import ClientClosedError, ForkedError

T = TypeVar("T")


class ClientLife(ABC):
    _what: ClassVar[str]
    """What users call it."""
    _is_forked = False
    _is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None: ...

    def _forked(self) -> None:
        self._is_forked = True

    def _check_usable(self) -> None:
        if self._is_forked:
            raise ForkedError(f"this {self._what} was made before the process forked; make a new one in the child")
        if self._is_closed:
            raise ClientClosedError(f"this {self._what} is closed; make another one")

    def _if_usable(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        try:
            self._check_usable()
        except BaseException:
            work.close()
            raise
        return work
