"""Bytes in, frames out: cuts a connection's byte stream into length-prefixed frames without copying the common case.

This owns the receive buffers and nothing else: it reads no socket. The caller asks where to receive (`receive_buffer`),
says how much came (`received`), and handles the frames it gets before it asks any reader of the same pool again,
because all readers of a pool share one large buffer. A frame that is still incomplete leaves that buffer at once: a
small one is set aside and put back in front of the next bytes, a large one moves to a buffer of its own, which the rest
is received into directly.
"""

from __future__ import annotations

import struct

from ottla.base.errors import ProtocolError

SHARED_BUFFER_BYTES = 256 * 1024
PRIVATE_BUFFER_BYTES = 64 * 1024
"""What a reader receives into when it was given no pool to share."""

SET_ASIDE_BYTES_MAX = 16 * 1024
"""Frames up to this size are put back into the shared buffer instead of getting one of their own."""

HEAD_BYTES = 4 * 1024
"""What is received behind a frame that is larger than the shared buffer. If another one follows, this tells its size,
and only this has to be copied into the buffer that the rest is received into."""

_SKEW_BYTES = 128
"""How far from the start of its memory a large frame begins. The processor's own copy instruction, which the kernel
uses, is nine times slower on AMD's Zen 3 and 4 if the target lies 1 to 15 bytes behind the source, both counted within
their pages. What a peer sends with one call mostly begins with a page, and without the skew a frame, which is kept
without its size, would be 12 bytes behind it."""

_CLASS_BYTES_MIN = 64 * 1024
_POOLED_BYTES_MAX = 32 * 1024 * 1024
_SIZE_BYTES = 4
_unpack_size = struct.Struct(">i").unpack_from

_GUESSES = (
    (b"\x16\x03", "this looks like a TLS client on a listener without TLS"),
    (b"GET ", "this looks like an HTTP request"),
    (b"POST", "this looks like an HTTP request"),
    (b"PUT ", "this looks like an HTTP request"),
    (b"HEAD", "this looks like an HTTP request"),
    (b"OPTI", "this looks like an HTTP request"),
    (b"HTTP", "this looks like an HTTP response"),
    (b"SSH-", "this looks like an SSH client"),
)


class BufferPool:
    """The shared receive buffer, and spare buffers for large frames by size class (powers of two).

    One event loop makes one pool for all its connections. Two loops must never share one.
    """

    def __init__(self, shared_bytes: int = SHARED_BUFFER_BYTES, pooled_bytes_max: int = _POOLED_BYTES_MAX) -> None:
        self.shared = memoryview(bytearray(shared_bytes))
        self.free = self.shared
        """The part of the shared buffer that is received into: all of it, unless frames in front of it are held."""
        self._spare: dict[int, list[memoryview]] = {}
        self._spare_bytes = 0
        self._spare_bytes_max = pooled_bytes_max

    def hold(self, rest: memoryview) -> None:
        """Keeps the frames that were received last until `reuse`. `rest` is what they left of the receive buffer."""
        self.free = rest

    def reuse(self) -> None:
        """All frames that were held are done with."""
        self.free = self.shared

    def take(self, needed_bytes: int, have_bytes: int) -> memoryview:
        """A buffer for a frame of `needed_bytes`, of which `have_bytes` have come.

        A spare one of the full size is free to use. Without one the buffer is only twice what has come: a peer that
        announces a large frame gets memory as it sends, not for the announcement.
        """
        wanted = _size_class(needed_bytes)
        if spare := self._spare.get(wanted):
            self._spare_bytes -= wanted
            return spare.pop()
        affordable = _size_class(2 * have_bytes)
        if affordable >= wanted:
            return _new_buffer(wanted)
        if spare := self._spare.get(affordable):
            self._spare_bytes -= affordable
            return spare.pop()
        return _new_buffer(affordable)

    def give_back(self, buffer: memoryview) -> None:
        size = len(buffer)
        if self._spare_bytes + size <= self._spare_bytes_max:
            self._spare_bytes += size
            self._spare.setdefault(size, []).append(buffer)


def _new_buffer(size: int) -> memoryview:
    return memoryview(bytearray(_SKEW_BYTES + size))[_SKEW_BYTES:]


def _size_class(size: int) -> int:
    return max(_CLASS_BYTES_MIN, 1 << (size - 1).bit_length())


class FrameReader:
    """The frames of one connection. Without a pool it has a buffer of its own, which many connections cannot afford."""

    __slots__ = (
        "_aside",
        "_expects_huge",
        "_frame_bytes",
        "_have_bytes",
        "_own",
        "_pool",
        "_trusted_bytes",
        "max_frame_bytes",
    )

    def __init__(self, max_frame_bytes: int, pool: BufferPool | None = None, *, trusted_bytes: int = 0) -> None:
        """Frames up to `trusted_bytes` get their memory when they are announced, and none to spare: for who asked for
        them, and keeps them."""
        self.max_frame_bytes = max_frame_bytes
        self._trusted_bytes = trusted_bytes
        self._pool = pool if pool is not None else BufferPool(PRIVATE_BUFFER_BYTES)
        self._aside = b""
        """The start of a small frame (or of its size), kept until more comes."""
        self._own: memoryview | None = None
        """The buffer of a large frame, while it fills and until the caller has handled it."""
        self._frame_bytes = 0
        """Of the frame in `_own`, and how many of them have come; of no meaning without one."""
        self._have_bytes = 0
        self._expects_huge = False
        """A frame larger than the shared buffer was detached, and the next one may be as large."""

    @property
    def is_mid_frame(self) -> bool:
        """Whether the stream so far ends within a frame: an end of file now would cut it off."""
        return bool(self._aside) or (self._own is not None and self._have_bytes < self._frame_bytes)

    def receive_buffer(self) -> memoryview:
        """Where the next bytes go. Frames handed out before, by any reader of the pool, are void from here on."""
        own = self._own
        if own is None:
            aside = self._aside
            free = self._pool.free
            if not aside:
                return free[:HEAD_BYTES] if self._expects_huge else free
            free[: len(aside)] = aside
            return free[len(aside) :]
        if self._have_bytes == self._frame_bytes:
            was_huge = self._frame_bytes > len(self._pool.shared)
            self._release()
            return self._pool.free[:HEAD_BYTES] if was_huge else self._pool.free
        if self._have_bytes == len(own):
            own = self._grow(own)
        return own[self._have_bytes : self._frame_bytes]

    def received(self, count: int) -> list[memoryview]:
        """The frames (without their size) that `count` more bytes completed.

        They are writable views, to be handled before the next `receive_buffer` of any reader of the pool.
        """
        if self._own is not None:
            self._have_bytes += count
            if self._have_bytes < self._frame_bytes:
                return []
            return [self._own[: self._frame_bytes]]
        free = self._pool.free
        end = count
        self._expects_huge = False
        if self._aside:
            end += len(self._aside)
            self._aside = b""
        frames: list[memoryview] = []
        max_frame_bytes = self.max_frame_bytes
        position = 0
        while end - position >= _SIZE_BYTES:
            start = position + _SIZE_BYTES
            (size,) = _unpack_size(free, position)
            if not 0 <= size <= max_frame_bytes:
                raise self._refusal(size, bytes(free[position:start]))
            if size > end - start:
                self._keep(free, position, end, size)
                return frames
            position = start + size
            frames.append(free[start:position])
        if position < end:
            self._aside = bytes(free[position:end])
        return frames

    def detach(self, frames: list[memoryview]) -> list[memoryview]:
        """The same frames in memory of their own, for a caller that cannot handle them now."""
        if self._own is not None and len(frames) == 1 and frames[0].obj is self._own.obj:
            self._own = None
            self._expects_huge = self._frame_bytes > len(self._pool.shared)
            return frames
        return [memoryview(bytearray(frame)) for frame in frames]

    def close(self) -> None:
        """Gives the buffers back; the reader is of no use after that."""
        self._aside = b""
        self._release()

    def _keep(self, free: memoryview, position: int, end: int, size: int) -> None:
        """Moves the incomplete frame at `position` out of the shared buffer."""
        if size + _SIZE_BYTES <= min(SET_ASIDE_BYTES_MAX, len(self._pool.shared)):
            self._aside = bytes(free[position:end])
            return
        start = position + _SIZE_BYTES
        have = end - start
        own = _new_buffer(size) if size <= self._trusted_bytes else self._pool.take(size, have)
        own[:have] = free[start:end]
        self._own = own
        self._frame_bytes = size
        self._have_bytes = have

    def _grow(self, own: memoryview) -> memoryview:
        larger = self._pool.take(self._frame_bytes, self._have_bytes)
        larger[: self._have_bytes] = own
        self._pool.give_back(own)
        self._own = larger
        return larger

    def _release(self) -> None:
        if self._own is not None:
            self._pool.give_back(self._own)
            self._own = None

    def _refusal(self, size: int, first: bytes) -> ProtocolError:
        for prefix, guess in _GUESSES:
            if first.startswith(prefix):
                return ProtocolError(f"not a Kafka frame: {guess}")
        if size < 0:
            return ProtocolError(f"a frame cannot have {size} bytes")
        return ProtocolError(f"a frame of {size} bytes is over the limit of {self.max_frame_bytes}")
