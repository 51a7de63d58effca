"""sys.exit() and Ctrl-C within a task: asyncio lets them out through the event loop, which ends there and then.

So they leave a task as an ordinary exception, and are raised again where they belong.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")

EXITS = (SystemExit, KeyboardInterrupt)


class KeptExit(Exception):  # noqa: N818 - it is no error, and never leaves the client
    def __init__(self, exit_: BaseException) -> None:
        super().__init__(exit_)
        self.exit = exit_


async def keep_exit(work: Awaitable[T]) -> T:
    """Waits for `work`; KeptExit if that wants to end the process."""
    try:
        return await work
    except EXITS as e:
        raise KeptExit(e) from None
