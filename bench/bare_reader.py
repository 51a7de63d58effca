"""The least that any consumer does: fetches one partition, one request ahead, checks batches and copies their records.

Nothing is looked at, so no consumer that asks like this and hands out records of its own can be faster: the limit that
ours are shown beside, from the same broker. The requests are packed by hand (Fetch v4), and there is no event loop.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

from crc32c import crc32c

from bench.frames import BATCH_HEADER_BYTES, framed, header, text

FETCH_BYTES = 2 << 20
"""What our consumers ask for, unless they are told otherwise."""

_FETCH = 1
_FETCH_VERSION = 4
_NO_REPLICA = -1
_MAX_WAIT_MS = 500
_MIN_BYTES = 1
_REPLY_BYTES_WITHOUT_TOPIC = 4 + 4 + 4 + 2 + 4 + 4 + 2 + 8 + 8 + 4
"""Of a reply of one partition, from the correlation id up to the length of the records; nothing was aborted."""
_LENGTH_AT = 8
_LENGTH_END = 12
_CRC_AT = 17
_CRC_END = 21
_LAST_DELTA_AT = 23
_COUNT_AT = 57


def read_bare(port: int, topic: str, count_rows: Callable[[int], bool]) -> None:
    """Reads partition 0 from its start, as long as `count_rows` says after each batch that there is more to read."""
    reply = memoryview(bytearray(FETCH_BYTES + 4096))
    records_at = 4 + _REPLY_BYTES_WITHOUT_TOPIC + len(topic)
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(_request(topic, 0))
        while True:
            have = _receive(sock, reply, 0, 4, len(reply))
            end = 4 + struct.unpack_from(">i", reply)[0]
            _receive(sock, reply, have, end, end)
            batches, next_offset = _whole_batches(reply, records_at + 4, end)
            sock.sendall(_request(topic, next_offset))
            for start, stop in batches:
                if crc32c(reply[start + _CRC_END : stop]) != struct.unpack_from(">I", reply, start + _CRC_AT)[0]:
                    raise ValueError(f"{topic}: a batch does not match its checksum")
                bytes(reply[start + BATCH_HEADER_BYTES : stop])
                if not count_rows(struct.unpack_from(">i", reply, start + _COUNT_AT)[0]):
                    return


def _receive(sock: socket.socket, reply: memoryview, have: int, least: int, most: int) -> int:
    """Until there are `least` bytes or more of the reply; returns how many there are."""
    while have < least:
        count = sock.recv_into(reply[have:most])
        if not count:
            raise ConnectionError("the broker closed the connection")
        have += count
    return have


def _request(topic: str, offset: int) -> bytes:
    fixed = struct.pack(">iiiib", _NO_REPLICA, _MAX_WAIT_MS, _MIN_BYTES, FETCH_BYTES, 0)
    partition = struct.pack(">iiqi", 1, 0, offset, FETCH_BYTES)
    return framed(header(_FETCH, _FETCH_VERSION) + fixed + struct.pack(">i", 1) + text(topic) + partition)


def _whole_batches(reply: memoryview, position: int, end: int) -> tuple[list[tuple[int, int]], int]:
    """Where they start and end, and the offset after the last."""
    batches = []
    next_offset = 0
    while position + BATCH_HEADER_BYTES <= end:
        stop = position + _LENGTH_END + struct.unpack_from(">i", reply, position + _LENGTH_AT)[0]
        if stop > end:
            break
        (base_offset,) = struct.unpack_from(">q", reply, position)
        next_offset = base_offset + struct.unpack_from(">i", reply, position + _LAST_DELTA_AT)[0] + 1
        batches.append((position, stop))
        position = stop
    if not batches:
        raise ValueError("there is nothing more to read")
    return batches, next_offset
