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
from ottla.records import compression
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


@pytest.mark.parametrize(("size", "blocks"), [(0, []), (1, [1]), (32_768, [32_768]), (32_769, [32_768, 1])])
def test_snappy_is_written_in_blocks_of_32_kib(size: int, blocks: list[int]) -> None:
    framed = compress(Codec.SNAPPY, TEXT[:size])
    found, at = [], 16
    while at < len(framed):
        (length,) = struct.unpack_from(">i", framed, at)
        found.append(cramjam.snappy.decompress_raw_len(framed[at + 4 : at + 4 + length]))
        at += 4 + length
    assert found == blocks
    assert decompress(Codec.SNAPPY, framed, size) == TEXT[:size]


@pytest.mark.parametrize("more", [0, 1])
def test_a_snappy_block_cannot_hold_more_than_22_times_its_size(more: int) -> None:
    block = struct.pack("<H", 0x80 | (22 * 50 + more) & 0x7F | (22 * 50 + more) >> 7 << 8) + bytes(48)
    assert (len(block), cramjam.snappy.decompress_raw_len(block)) == (50, 22 * 50 + more)
    with pytest.raises(CorruptBatchError, match="claims to hold" if more else "damaged"):
        decompress(Codec.SNAPPY, block, MIB)


def test_what_is_wrong_with_the_blocks_of_a_snappy_payload_is_said() -> None:
    header = bytes.fromhex("82534e4150505900 00000001 00000001")
    for rest, complaint in (
        (b"\0\0\0", "within the length of a block"),
        (b"\0\0\0\5abcd", "claims 5 bytes, 4 are left"),
        (b"\xff\xff\xff\xf0abcdefghijklmnopqrstuvwxyz", "claims -16 bytes, 26 are left"),
    ):
        with pytest.raises(CorruptBatchError, match=complaint):
            decompress(Codec.SNAPPY, header + rest, MIB)
    with pytest.raises(CorruptBatchError, match="within its header"):
        decompress(Codec.SNAPPY, header[:15], MIB)


@pytest.mark.parametrize(
    ("given", "taken"), [(None, 1), (1, 1), (3, 3), (8, 8), (9, 1), (10, 10), (11, 11), (12, 12), (13, 12), (17, 12)]
)
def test_levels_of_lz4(given: int | None, taken: int) -> None:
    expected = cramjam.lz4.Compressor(level=taken, content_checksum=False, block_linked=False)
    expected.compress(TEXT)
    assert compress(Codec.LZ4, TEXT, given) == bytes(expected.finish())


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_a_level_is_what_the_library_has_by_this_name(codec: Codec) -> None:
    library = {Codec.GZIP: cramjam.gzip, Codec.ZSTD: cramjam.zstd}[codec]
    for level in (1, 9):
        assert compress(codec, TEXT, level)[10:] == bytes(library.compress(TEXT, level=level))[10:]
    assert compress(codec, TEXT)[10:] == bytes(library.compress(TEXT))[10:]
    assert compress(codec, TEXT, 1) != compress(codec, TEXT, 9)


@pytest.mark.parametrize(
    ("size", "max_size", "tried"),
    [
        (100, MIB, [16_384]),
        (16_384, MIB, [16_384]),
        (16_385, MIB, [16_384, 65_536]),
        (200_000, MIB, [16_384, 65_536, 262_144]),
        (200_000, 200_000, [16_384, 65_536, 200_000]),
        (100, 100, [100]),
    ],
)
def test_memory_for_the_output_grows_as_it_is_filled(
    size: int, max_size: int, tried: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    capacities: list[int] = []

    def noted(data: bytes, output: bytearray) -> int:
        capacities.append(len(output))
        return int(cramjam.zstd.decompress_into(data, output))

    monkeypatch.setitem(compression._DECOMPRESS_INTO, Codec.ZSTD, noted)
    assert decompress(Codec.ZSTD, compress(Codec.ZSTD, bytes(size)), max_size) == bytes(size)
    assert capacities == tried


def test_memory_for_the_output_begins_with_four_times_the_payload(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"".join(bytes([n * n % 251, n * 7919 % 256, n * 104_729 % 253]) for n in range(10_000))
    payload = compress(Codec.ZSTD, data)
    assert 4 * len(payload) > 16_384
    monkeypatch.setitem(
        compression._DECOMPRESS_INTO,
        Codec.ZSTD,
        lambda given, output: len(output) == 4 * len(payload) and int(cramjam.zstd.decompress_into(given, output)),
    )
    assert decompress(Codec.ZSTD, payload, MIB) == data


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
