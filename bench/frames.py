"""The few frames the Python side of the bench sends, packed by hand: no codec under test is part of the yardstick."""

from __future__ import annotations

import socket
import struct
import time

BATCH_HEADER_BYTES = 61
PRODUCE_REPLY_BYTES_WITHOUT_TOPIC = 4 + 4 + 4 + 2 + 4 + 4 + 2 + 8 + 8 + 8 + 4


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(api_key: int, version: int) -> bytes:
    return struct.pack(">hhi", api_key, version, 0) + text("bench")


def produce_reply_bytes(topic: str) -> int:
    """How long the reply to a Produce v7 of one partition is, so that the sink sends as much as a broker."""
    return PRODUCE_REPLY_BYTES_WITHOUT_TOPIC + len(topic)


def receive_frame(sock: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", _exactly(sock, 4))
    return _exactly(sock, size)


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        chunk = sock.recv(count - len(data))
        if not chunk:
            raise ConnectionError("the peer closed the connection")
        data += chunk
    return bytes(data)


def ask_api_versions(port: int) -> None:
    """The first thing every client asks; whoever answers is up."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall(framed(header(18, 0)))
        receive_frame(sock)


def create_topic(port: int, topic: str, *, timeout_s: float = 20) -> int:
    """Has the topic created by asking for it (Metadata v4); returns how many partitions it has, all with leaders."""
    request = framed(header(3, 4) + struct.pack(">i", 1) + text(topic) + b"\x01")
    deadline_s = time.monotonic() + timeout_s
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as sock:
        while time.monotonic() < deadline_s:
            sock.sendall(request)
            errors = _metadata_errors(receive_frame(sock), topic)
            if errors and not any(errors) and _all_lead(sock, topic, len(errors) - 1):
                return len(errors) - 1
            time.sleep(0.05)
    raise TimeoutError(f"the topic {topic} did not get leaders within {timeout_s} s")


def _all_lead(sock: socket.socket, topic: str, partitions: int) -> bool:
    """Whether every partition tells its end (ListOffsets v1): Apache Kafka names leaders that do not lead yet."""
    asked = b"".join(struct.pack(">iq", index, -1) for index in range(partitions))
    sock.sendall(framed(header(2, 1) + struct.pack(">ii", -1, 1) + text(topic) + struct.pack(">i", partitions) + asked))
    reply = receive_frame(sock)
    first_error = 4 + 4 + 2 + len(topic) + 4 + 4
    return not any(
        struct.unpack_from(">h", reply, first_error + index * (4 + 2 + 8 + 8))[0] for index in range(partitions)
    )


def delete_topic(port: int, topic: str) -> None:
    """DeleteTopics v1."""
    request = framed(header(20, 1) + struct.pack(">i", 1) + text(topic) + struct.pack(">i", 10_000))
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        sock.sendall(request)
        (error,) = struct.unpack_from(">h", receive_frame(sock), 4 + 4 + 4 + 2 + len(topic))
    if error:
        raise RuntimeError(f"the topic {topic} could not be deleted: error {error}")


def find_coordinator(port: int, group: str, *, timeout_s: float = 20) -> None:
    """Has the coordinator of groups set up (FindCoordinator v0), and waits until it takes requests (Heartbeat v0)."""
    deadline_s = time.monotonic() + timeout_s
    not_yet = (14, 15, 16)
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as sock:
        while time.monotonic() < deadline_s:
            sock.sendall(framed(header(10, 0) + text(group)))
            (error,) = struct.unpack_from(">h", receive_frame(sock), 4)
            if not error:
                sock.sendall(framed(header(12, 0) + text(group) + struct.pack(">i", 1) + text("nobody")))
                (error,) = struct.unpack_from(">h", receive_frame(sock), 4)
                if error not in not_yet:
                    return
            time.sleep(0.05)
    raise TimeoutError(f"the group {group} did not get a coordinator within {timeout_s} s")


def _metadata_errors(reply: bytes, topic: str) -> list[int]:
    """The error code of the topic, then those of its partitions, from a Metadata v4 reply about one topic."""
    at = 8
    (brokers,) = struct.unpack_from(">i", reply, at)
    at += 4
    for _ in range(brokers):
        at = _after_text(reply, _after_text(reply, at + 4) + 4)
    at = _after_text(reply, at) + 4 + 4
    (error,) = struct.unpack_from(">h", reply, at)
    at = _after_text(reply, at + 2) + 1
    (partitions,) = struct.unpack_from(">i", reply, at)
    errors = [error]
    at += 4
    for _ in range(partitions):
        (partition_error,) = struct.unpack_from(">h", reply, at)
        errors.append(partition_error)
        at += 10
        for _ in ("replicas", "in-sync replicas"):
            (count,) = struct.unpack_from(">i", reply, at)
            at += 4 + 4 * count
    return errors


def _after_text(data: bytes, at: int) -> int:
    length = int.from_bytes(data[at : at + 2], "big", signed=True)
    return at + 2 + max(length, 0)
