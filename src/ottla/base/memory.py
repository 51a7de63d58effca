"""How the C library's allocator is made to keep memory that will be needed again at once."""

from __future__ import annotations

from functools import cache

_BLOCK_BYTES = 8 << 20


@cache
def keep_freed_memory() -> None:
    """For processes that take and free megabytes all the time: what is free is kept, up to a few blocks of this size.

    glibc gives memory back to the system as soon as 128 KiB at the end of the heap are free, and gets it again page by
    page, which costs more than filling it. Both bounds grow with the largest block that was ever freed. Nothing is
    written to this one, so it costs two system calls; where the C library is another one, it does nothing else.
    """
    bytes(_BLOCK_BYTES)
