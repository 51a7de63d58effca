"""The codecs a batch may be compressed with, framed so that every client can read them.

A payload comes from whoever produced it, so decompression trusts nothing it says about its size: output never grows
beyond the caller's `max_size`, and memory grows only with output that was really produced.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import Final

import cramjam

from ottla.base.errors import CorruptBatchError
from ottla.base.types import ReadBuffer


class Codec(IntEnum):
    """A codec by its number in the batch attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def config_name(self) -> str:
        """The name used by `compression.type` of a producer (a topic says `uncompressed` for NONE)."""
        return self.name.lower()

    @classmethod
    def from_name(cls, name: str) -> Codec:
        """The inverse of `config_name`; `uncompressed` is NONE too. Raises ValueError on any other name."""
        try:
            return _CODEC_OF_NAME[name]
        except KeyError:
            raise ValueError(f"no codec is called {name!r}; known: {', '.join(_CODEC_OF_NAME)}") from None


_CODEC_OF_NAME = {codec.config_name: codec for codec in Codec} | {"uncompressed": Codec.NONE}

LEVELS: Final[dict[Codec, range]] = {Codec.GZIP: range(1, 10), Codec.LZ4: range(1, 18), Codec.ZSTD: range(-131072, 23)}
"""The levels each codec takes (KIP-390). GZIP takes -1 too, for its default."""

_GZIP_DEFAULT_LEVEL: Final = -1
# Kafka's default level of lz4 is 9, and by it means the fast compressor, not level 9 of the thorough one (KIP-390).
_LZ4_DEFAULT_LEVEL: Final = 9
_LZ4_FAST: Final = 1
_LZ4_MOST_THOROUGH: Final = 12

# The framing of the xerial library: a magic, two version numbers that readers ignore, then length-prefixed blocks.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + bytes((0, 0, 0, 1, 0, 0, 0, 1))
_XERIAL_BLOCK_SIZE: Final = 32 * 1024
_INT32: Final = Struct(">i")
# A copy element of three bytes gives at most 64, so no honest snappy block expands further than this.
_SNAPPY_MAX_RATIO: Final = 22

_FIRST_GUESS_RATIO: Final = 4
_FIRST_GUESS_MIN: Final = 16 * 1024
_GROWTH: Final = 4
# What Rust says when a buffer is full. Damage says something else, and must not make us try with more memory.
_OUT_OF_ROOM: Final = "failed to write whole buffer"


def compress(codec: Codec, data: ReadBuffer, level: int | None = None) -> bytes:
    """`data` as the payload of a batch. Raises ValueError on a level the codec does not have."""
    if level is not None and codec in LEVELS and level not in LEVELS[codec]:
        if codec is not Codec.GZIP or level != _GZIP_DEFAULT_LEVEL:
            raise ValueError(f"{codec.config_name} has no level {level}")
        level = None
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.GZIP:
        return bytes(cramjam.gzip.compress(data, level=level))
    if codec is Codec.SNAPPY:
        return _compress_snappy(data)
    if codec is Codec.LZ4:
        return _compress_lz4(data, level)
    return bytes(cramjam.zstd.compress(data, level=level))


def _compress_snappy(data: ReadBuffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_SIZE]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _compress_lz4(data: ReadBuffer, level: int | None) -> bytes:
    if level is None or level == _LZ4_DEFAULT_LEVEL:
        level = _LZ4_FAST
    # The Java client refuses frames whose blocks refer to earlier ones, which is what cramjam's one-call form writes.
    compressor = cramjam.lz4.Compressor(
        level=min(level, _LZ4_MOST_THOROUGH), content_checksum=False, block_linked=False
    )
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def decompress(codec: Codec, data: ReadBuffer, max_size: int) -> bytes:
    """The inverse of `compress`, for payloads of any writer.

    Raises CorruptBatchError if the payload is damaged or comes to more than `max_size` bytes.
    """
    if codec is Codec.NONE:
        if len(data) > max_size:
            raise CorruptBatchError(f"the records are {len(data)} bytes, more than the {max_size} allowed")
        return bytes(data)
    if codec is Codec.SNAPPY:
        return _decompress_snappy(memoryview(data), max_size)
    return _decompress_growing(codec, data, max_size)


def _decompress_growing(codec: Codec, data: ReadBuffer, max_size: int) -> bytes:
    """Decompress into a buffer of our own size, and into a larger one if it was filled and the limit allows it."""
    decompress_into = _DECOMPRESS_INTO[codec]
    capacity = min(max_size, max(_FIRST_GUESS_MIN, len(data) * _FIRST_GUESS_RATIO))
    while True:
        output = bytearray(capacity)
        try:
            size = decompress_into(data, output)
            return bytes(memoryview(output)[:size])
        except cramjam.DecompressionError as e:
            if _OUT_OF_ROOM not in str(e):
                raise CorruptBatchError(f"the {codec.config_name} payload is damaged: {e}") from e
        if capacity == max_size:
            raise CorruptBatchError(f"the {codec.config_name} payload is larger than the {max_size} bytes allowed")
        capacity = min(max_size, capacity * _GROWTH)


_DECOMPRESS_INTO = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}


def _decompress_snappy(data: memoryview, max_size: int) -> bytes:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(data, max_size)
    parts: list[bytes] = []
    left = max_size
    for block in _xerial_blocks(data):
        part = _decompress_snappy_block(block, left)
        left -= len(part)
        parts.append(part)
    return b"".join(parts)


def _xerial_blocks(data: memoryview) -> Iterator[memoryview]:
    pos = len(_XERIAL_HEADER)
    if len(data) < pos:
        raise CorruptBatchError("the snappy payload ends within its header")
    while pos < len(data):
        start = pos + _INT32.size
        if start > len(data):
            raise CorruptBatchError("the snappy payload ends within the length of a block")
        (length,) = _INT32.unpack_from(data, pos)
        pos = start + length
        if length < 0 or pos > len(data):
            raise CorruptBatchError(f"a snappy block claims {length} bytes, {len(data) - start} are left")
        yield data[start:pos]


def _decompress_snappy_block(block: memoryview, max_size: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > max_size:
            raise CorruptBatchError(f"the snappy payload is larger than the {max_size} bytes allowed")
        if size > len(block) * _SNAPPY_MAX_RATIO:
            raise CorruptBatchError(f"a snappy block of {len(block)} bytes claims to hold {size}")
        output = bytearray(size)
        written: int = cramjam.snappy.decompress_raw_into(block, output)
    except cramjam.DecompressionError as e:
        raise CorruptBatchError(f"the snappy payload is damaged: {e}") from e
    if written != size:
        raise CorruptBatchError(f"a snappy block claims to hold {size} bytes and holds {written}")
    return bytes(output)
