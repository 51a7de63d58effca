"""What calling a handler means: a function is done when it returns, a coroutine when it has been awaited."""

from __future__ import annotations

import inspect
from collections.abc import Callable


def is_coroutine_function(handler: Callable[..., object]) -> bool:
    """False does not mean that there is nothing to wait for: an ordinary function may return a coroutine."""
    return _is_any(handler, inspect.iscoroutinefunction)


def check_handler(handler: Callable[..., object]) -> None:
    """TypeError for a function that yields."""
    if _is_any(handler, inspect.isgeneratorfunction) or _is_any(handler, inspect.isasyncgenfunction):
        raise TypeError("the handler is a generator function, which does not run when it is called; write no yield")


def check_returned(returned: object) -> None:
    """TypeError if an ordinary function has returned what such a function does."""
    if inspect.isgenerator(returned) or inspect.isasyncgen(returned):
        raise TypeError("the handler has returned a generator, of which nothing has run")


def _is_any(handler: Callable[..., object], kind: Callable[[object], bool]) -> bool:
    return kind(handler) or kind(type(handler).__call__)
