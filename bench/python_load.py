"""The load generator in Python, for machines without a C compiler: the commands and output of native/load.c.

It prebuilds its frames, but it can be slower than what it measures; the report says when it was used.
"""

from __future__ import annotations

import json
import select
import socket
import statistics
import struct
import sys
import time
from collections import deque

import crc32c

from bench.frames import BATCH_HEADER_BYTES, framed, header, receive_frame, text


def varint(value: int) -> bytes:
    left = (value << 1) ^ (value >> 63)
    out = bytearray()
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    out.append(left)
    return bytes(out)


def build_batch(records: int, record_bytes: int) -> bytes:
    parts = []
    for number in range(records):
        record = b"\0" + varint(0) + varint(number) + varint(-1) + varint(record_bytes) + b"v" * record_bytes + b"\0"
        parts.append(varint(len(record)) + record)
    body = b"".join(parts)
    now_ms = int(time.time()) * 1000
    checked = struct.pack(">hiqqqhii", 0, records - 1, now_ms, now_ms, -1, -1, -1, records) + body
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c.crc32c(checked)) + checked


def produce_frame(topic: str, partition: int, batch: bytes, acks: int = 1) -> bytes:
    target = struct.pack(">i", 1) + text(topic) + struct.pack(">iii", 1, partition, len(batch))
    return framed(header(0, 7) + struct.pack(">hhi", -1, acks, 30_000) + target + batch)


def commit_frame(group: str, topic: str) -> bytes:
    partition = struct.pack(">iiqi", 1, 0, 1000, -1) + text("a note")
    return framed(
        header(8, 6) + text(group) + struct.pack(">i", -1) + text("") + struct.pack(">i", 1) + text(topic) + partition
    )


def fetch_frame(topic: str, offsets: list[int], max_wait_ms: int, partition_bytes: int) -> bytes:
    fixed = struct.pack(">iiiibii", -1, max_wait_ms, 1, 50 << 20, 0, 0, -1)
    partitions = b"".join(
        struct.pack(">iiqqi", number, -1, offset, -1, partition_bytes) for number, offset in enumerate(offsets)
    )
    topics = struct.pack(">i", 1) + text(topic) + struct.pack(">i", len(offsets)) + partitions
    return framed(header(1, 11) + fixed + topics + struct.pack(">ih", 0, 0))


def dial(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=20)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Faster than peers accept, their queues overflow and a connection takes a second, once it is tried again.
    time.sleep(0.0002)
    return sock


class Producer:
    """`error_at` is where a reply has its error code."""

    def __init__(self, port: int, frames: list[bytes], error_at: int, depth: int) -> None:
        self.socket = dial(port)
        self.socket.setblocking(False)
        self.frames = frames
        self.error_at = error_at
        self.depth = depth
        self.next_frame = 0
        self.unsent = memoryview(b"")
        self.received = b""
        self.sent_at_s: deque[float] = deque()

    def take_replies(self, latencies_s: list[float]) -> None:
        try:
            chunk = self.socket.recv(65536)
        except BlockingIOError:
            return
        if not chunk:
            raise ConnectionError("the peer closed the connection")
        data = self.received + chunk
        received_at_s = time.perf_counter()
        at = 0
        while len(data) - at >= 4:
            (size,) = struct.unpack_from(">i", data, at)
            if len(data) - at < 4 + size:
                break
            (error,) = struct.unpack_from(">h", data, at + self.error_at)
            if error:
                raise RuntimeError(f"a request was answered with error {error}")
            latencies_s.append(received_at_s - self.sent_at_s.popleft())
            at += 4 + size
        self.received = data[at:]

    def send_more(self, allowed: int) -> int:
        """Starts up to `allowed` further requests; returns how many it did."""
        started = 0
        try:
            while True:
                if not self.unsent:
                    if len(self.sent_at_s) == self.depth or started == allowed:
                        return started
                    self.unsent = memoryview(self.frames[self.next_frame])
                    self.next_frame = (self.next_frame + 1) % len(self.frames)
                    self.sent_at_s.append(time.perf_counter())
                    started += 1
                self.unsent = self.unsent[self.socket.send(self.unsent) :]
        except BlockingIOError:
            return started


def produce(arguments: list[str], acks: int = 1) -> dict[str, float]:
    topic = arguments[1]
    port, partitions, connections, depth, records, record_bytes, requests = map(int, arguments[:1] + arguments[2:])
    batch = build_batch(records, record_bytes)
    frames = [produce_frame(topic, partition, batch, acks) for partition in range(partitions)]
    error_at = 4 + 4 + 4 + 2 + len(topic) + 4 + 4
    shifts = [number % partitions for number in range(connections)]
    producers = [Producer(port, frames[shift:] + frames[:shift], error_at, depth) for shift in shifts]
    return drive(producers, requests, len(batch))


def replicate(arguments: list[str]) -> dict[str, float]:
    return produce(arguments, acks=-1)


def commit(arguments: list[str]) -> dict[str, float]:
    topic = arguments[1]
    port, connections, depth, requests = map(int, arguments[:1] + arguments[2:])
    error_at = 4 + 4 + 4 + 4 + 2 + len(topic) + 4 + 4
    frames = [commit_frame(f"bench-{number}", topic) for number in range(connections)]
    return drive([Producer(port, [frame], error_at, depth) for frame in frames], requests, len(frames[0]))


def drive(producers: list[Producer], requests: int, payload_bytes: int) -> dict[str, float]:
    """Sends until all requests are answered."""
    poll = select.epoll()
    by_fd = {producer.socket.fileno(): producer for producer in producers}
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
    latencies_s: list[float] = []
    started = 0
    begun_s, cpu_begun_s = time.perf_counter(), time.process_time()
    while len(latencies_s) < requests:
        for fd, _ in poll.poll(10):
            by_fd[fd].take_replies(latencies_s)
            started += by_fd[fd].send_more(requests - started)
    took_s, cpu_s = time.perf_counter() - begun_s, time.process_time() - cpu_begun_s
    latencies_s.sort()
    return {
        "requests_per_s": requests / took_s,
        "bytes_per_s": requests * payload_bytes / took_s,
        "p50_us": latencies_s[len(latencies_s) // 2] * 1e6,
        "p99_us": latencies_s[len(latencies_s) * 99 // 100] * 1e6,
        "load_cpu": cpu_s / took_s,
        "seconds": took_s,
    }


def read_fetch_reply(reply: bytes, offsets: list[int], high_watermarks: list[int]) -> int:
    """Moves `offsets` past the batches of a reply about one topic; returns the bytes of records in it."""
    at = 14
    (topics,) = struct.unpack_from(">i", reply, at)
    if not topics:
        return 0
    (length,) = struct.unpack_from(">h", reply, at + 4)
    at += 6 + length
    (partitions,) = struct.unpack_from(">i", reply, at)
    at += 4
    total = 0
    for _ in range(partitions):
        index, error, high_watermarks[index] = struct.unpack_from(">ihq", reply, at)
        if error:
            raise RuntimeError(f"fetch was answered with error {error}")
        (aborted,) = struct.unpack_from(">i", reply, at + 30)
        at += 34 + 16 * max(aborted, 0) + 4
        (size,) = struct.unpack_from(">i", reply, at)
        at += 4
        end = at + max(size, 0)
        total += end - at
        while end - at >= BATCH_HEADER_BYTES:
            base_offset, batch_bytes = struct.unpack_from(">qi", reply, at)
            if at + 12 + batch_bytes > end:
                break
            (last_delta,) = struct.unpack_from(">i", reply, at + 23)
            offsets[index] = base_offset + last_delta + 1
            at += 12 + batch_bytes
        at = end
    return total


def receive_and_count(sock: socket.socket, buffer: memoryview) -> int:
    have, need = 0, 4
    while have < need:
        count = sock.recv_into(buffer[have:])
        if not count:
            raise ConnectionError("the peer closed the connection")
        have += count
        if have >= 4:
            need = 4 + int.from_bytes(buffer[:4], "big")
    return have


def fetch(arguments: list[str]) -> dict[str, float]:
    topic = arguments[1]
    port, partitions, partition_bytes, total_bytes, raw = map(int, arguments[:1] + arguments[2:])
    sock = dial(port)
    buffer = memoryview(bytearray(partitions * partition_bytes + (8 << 20)))
    offsets, high_watermarks = [0] * partitions, [0] * partitions
    got_bytes = requests = 0
    begun_s = time.perf_counter()
    while got_bytes < total_bytes:
        sock.sendall(fetch_frame(topic, offsets, 500, partition_bytes))
        size = receive_and_count(sock, buffer)
        record_bytes = size if raw else read_fetch_reply(buffer[4:size], offsets, high_watermarks)  # type: ignore[arg-type]
        if not record_bytes:
            raise RuntimeError("there is nothing to fetch")
        got_bytes += record_bytes
        requests += 1
        offsets = [0 if at >= high else at for at, high in zip(offsets, high_watermarks, strict=True)]
    took_s = time.perf_counter() - begun_s
    return {"requests_per_s": requests / took_s, "bytes_per_s": got_bytes / took_s, "seconds": took_s}


def longpoll(arguments: list[str]) -> dict[str, float]:
    port, topic, rounds = int(arguments[0]), arguments[1], int(arguments[2])
    consumer, producer = dial(port), dial(port)
    frame = produce_frame(topic, 0, build_batch(1, 100))
    offsets, high_watermarks = [0], [0]
    waits_s = []
    for _ in range(rounds + 1):
        consumer.sendall(fetch_frame(topic, offsets, 5000, 1 << 20))
        time.sleep(0.0005)
        sent_s = time.perf_counter()
        producer.sendall(frame)
        reply = receive_frame(consumer)
        waits_s.append(time.perf_counter() - sent_s)
        read_fetch_reply(reply, offsets, high_watermarks)
        receive_frame(producer)
    waits_s = sorted(waits_s[1:])
    return {"p50_us": statistics.median(waits_s) * 1e6, "p99_us": waits_s[len(waits_s) * 99 // 100] * 1e6}


def idle(arguments: list[str]) -> dict[str, float]:
    held = [dial(int(arguments[0])) for _ in range(int(arguments[1]))]
    print(json.dumps({"connections": len(held)}), flush=True)
    sys.stdin.read()
    raise SystemExit


if __name__ == "__main__":
    commands = {
        "produce": produce,
        "replicate": replicate,
        "commit": commit,
        "fetch": fetch,
        "longpoll": longpoll,
        "idle": idle,
    }
    print(json.dumps(commands[sys.argv[1]](sys.argv[2:])))
