from __future__ import annotations

import gzip
import resource
import struct
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import CorruptBatchError
from ottla.records.compression import Codec, compress, decompress

MIB = 1 << 20
COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
TEXT = b"".join(b"line %d of a text that repeats itself\n" % i for i in range(4000))


def test_names() -> None:
    assert [codec.config_name for codec in Codec] == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert [Codec.from_name(codec.config_name) for codec in Codec] == list(Codec)
    assert Codec.from_name("uncompressed") is Codec.NONE
    with pytest.raises(ValueError, match="brotli"):
        Codec.from_name("brotli")


@settings(max_examples=60)
@given(st.sampled_from(Codec), st.binary(max_size=2000), st.integers(0, 60))
def test_round_trip(codec: Codec, data: bytes, repeat: int) -> None:
    data *= repeat
    assert decompress(codec, memoryview(compress(codec, memoryview(data))), len(data)) == data


@pytest.mark.parametrize("codec", COMPRESSED)
def test_it_compresses_and_what_it_says_of_its_size_is_a_limit(codec: Codec) -> None:
    data = compress(codec, TEXT)
    assert len(data) < len(TEXT) // 3
    assert decompress(codec, data, len(TEXT)) == TEXT
    with pytest.raises(CorruptBatchError):
        decompress(codec, data, len(TEXT) - 1)
    with pytest.raises(CorruptBatchError):
        decompress(codec, data, 0)


def test_uncompressed_records_have_the_limit_too() -> None:
    assert decompress(Codec.NONE, memoryview(b"abc"), 3) == b"abc"
    with pytest.raises(CorruptBatchError):
        decompress(Codec.NONE, b"abcd", 3)


@pytest.mark.parametrize(
    ("codec", "least", "most"), [(Codec.GZIP, 1, 9), (Codec.LZ4, 1, 17), (Codec.ZSTD, -131072, 22)]
)
def test_levels(codec: Codec, least: int, most: int) -> None:
    for level in (least, most):
        assert decompress(codec, compress(codec, TEXT, level), len(TEXT)) == TEXT
    for level in (least - 1, most + 1):
        with pytest.raises(ValueError, match="level"):
            compress(codec, TEXT, level)
    assert compress(Codec.GZIP, TEXT, -1) == compress(Codec.GZIP, TEXT)
    assert compress(Codec.LZ4, TEXT, 9) == compress(Codec.LZ4, TEXT)


def test_snappy_is_written_in_frames_of_the_java_library_and_read_without_them() -> None:
    framed = compress(Codec.SNAPPY, TEXT)
    assert framed[:16] == bytes.fromhex("82534e4150505900 00000001 00000001")
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), len(TEXT)) == TEXT
    little_endian_versions = framed[:8] + struct.pack("<ii", 1, 1) + framed[16:]
    assert decompress(Codec.SNAPPY, little_endian_versions, len(TEXT)) == TEXT


def test_lz4_blocks_are_independent_and_linked_ones_are_read() -> None:
    flags = compress(Codec.LZ4, TEXT)[4]
    assert flags >> 6 == 1, "version"
    assert flags & 0x20, "blocks do not refer to each other"
    assert not flags & 0x08, "no content size"
    linked = bytes(cramjam.lz4.compress(TEXT))
    assert not linked[4] & 0x20
    assert decompress(Codec.LZ4, linked, len(TEXT)) == TEXT


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_a_payload_of_several_frames_is_read_to_its_end(codec: Codec) -> None:
    assert decompress(codec, compress(codec, b"one ") + compress(codec, b"two"), 100) == b"one two"


def test_zstd_without_a_content_size() -> None:
    stream = cramjam.zstd.Compressor()
    stream.compress(TEXT)
    data = bytes(stream.finish())
    assert not data[4] & 0xE0, "neither a single segment nor a content size"
    assert decompress(Codec.ZSTD, data, len(TEXT)) == TEXT


@pytest.mark.parametrize("codec", COMPRESSED)
def test_every_truncated_prefix_is_noticed(codec: Codec) -> None:
    data = compress(codec, TEXT[:3000])
    # Between two snappy blocks, and right after the frame's header, less data is a shorter payload and no damage.
    harmless = {16} if codec is Codec.SNAPPY else set()
    for cut in range(len(data)):
        if cut in harmless:
            continue
        with pytest.raises(CorruptBatchError):
            decompress(codec, data[:cut], MIB)


def size_or_none(codec: Codec, payload: bytes | bytearray, max_size: int) -> int | None:
    """How much comes out, None if the payload is refused; any other exception is a failure."""
    try:
        return len(decompress(codec, payload, max_size))
    except CorruptBatchError:
        return None


@settings(max_examples=150)
@given(st.sampled_from(COMPRESSED), st.data())
def test_damage_is_an_error_or_other_bytes_but_never_too_many(codec: Codec, data: st.DataObject) -> None:
    payload = bytearray(compress(codec, TEXT[:5000]))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    assert size_or_none(codec, payload, 10_000) in (None, *range(10_001))


@settings(max_examples=150)
@given(st.sampled_from(COMPRESSED), st.binary(max_size=100))
def test_junk_is_an_error_or_short(codec: Codec, junk: bytes) -> None:
    magic = {
        Codec.GZIP: b"\x1f\x8b\x08\x00",
        Codec.SNAPPY: bytes.fromhex("82534e41505059000000000100000001"),
        Codec.LZ4: b"\x04\x22\x4d\x18",
        Codec.ZSTD: b"\x28\xb5\x2f\xfd",
    }[codec]
    for payload in (junk, magic + junk):
        assert size_or_none(codec, payload, 10_000) in (None, *range(10_001))


def bomb(codec: Codec, size: int) -> bytes:
    """`size` zeros in as few bytes as the codec has for them."""
    if codec is Codec.SNAPPY:
        one = bytes(cramjam.snappy.compress_raw(bytes(MIB)))
        block = struct.pack(">i", len(one)) + one
        return bytes.fromhex("82534e41505059000000000100000001") + block * (size // MIB)
    if codec is Codec.GZIP:
        return gzip.compress(bytes(MIB), 9) * (size // MIB)
    return compress(codec, bytes(MIB)) * (size // MIB)


@contextmanager
def memory_limit(python_bytes: int, process_bytes: int) -> Iterator[None]:
    """The codecs allocate outside Python's own heap, so what the process has taken is measured too."""

    def peak_rss() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    rss_before = peak_rss()
    tracemalloc.start()
    try:
        yield
        _, python_peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert python_peak <= python_bytes
    assert peak_rss() - rss_before <= process_bytes


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_takes_no_more_memory_than_the_limit(codec: Codec) -> None:
    payload = bomb(codec, 512 * MIB)
    with memory_limit(9 * MIB, 40 * MIB), pytest.raises(CorruptBatchError, match="larger than"):
        decompress(codec, payload, 4 * MIB)


@pytest.mark.parametrize(
    ("codec", "payload"),
    [
        pytest.param(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\x00a", id="snappy block of 4 GiB"),
        pytest.param(Codec.SNAPPY, b"\x80\x80\x80\x30" + b"\x00a", id="snappy block of 96 MiB"),
        pytest.param(Codec.ZSTD, b"\x28\xb5\x2f\xfd\xe0" + (2**40).to_bytes(8, "little"), id="zstd of 1 TiB"),
        pytest.param(Codec.ZSTD, b"\x28\xb5\x2f\xfd\x00\x88" + b"\x01\x00", id="zstd window of 128 MiB"),
        pytest.param(Codec.LZ4, bytes.fromhex("04224d18 68 70 ffffffffffffff7f 00"), id="lz4 of 8 EiB"),
        pytest.param(Codec.GZIP, zlib.compress(b"a", wbits=31)[:-4] + b"\xff\xff\xff\xff", id="gzip of 4 GiB"),
    ],
)
def test_a_size_that_is_only_claimed_allocates_nothing(codec: Codec, payload: bytes) -> None:
    with memory_limit(MIB, 16 * MIB), pytest.raises(CorruptBatchError):
        decompress(codec, payload, 1024 * MIB)
