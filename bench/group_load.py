"""A classic group of many members, each a connection, that rebalances again and again.

python -m bench.group_load PORT GROUP MEMBERS ROUNDS

Every round all members join at once with a new subscription, without which they would be told that they are members
already. Each sends its SyncGroup as soon as it knows its generation. Prints one line of JSON: how long it takes from
the first JoinGroup to the last assignment, the median of all rounds.
"""

from __future__ import annotations

import json
import socket
import statistics
import struct
import sys
import time

from bench.frames import framed, header, receive_frame, text

JOIN, SYNC = 11, 14
SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 30_000
METADATA_BYTES = 48
"""As long as a subscription to one topic."""
ASSIGNMENT = bytes(64)


class Member:
    def __init__(self, port: int, group: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._group = text(group)
        self._id = ""

    def send_join(self, subscription: int) -> None:
        metadata = struct.pack(">i", METADATA_BYTES) + subscription.to_bytes(METADATA_BYTES, "big")
        times = struct.pack(">ii", SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS)
        protocols = struct.pack(">i", 1) + text("range") + metadata
        body = self._group + times + text(self._id) + text("consumer") + protocols
        self._socket.sendall(framed(header(JOIN, 3) + body))

    def answer_join(self) -> None:
        """Waits for the generation, and asks for the assignment; the leader brings one for each member."""
        reply = receive_frame(self._socket)
        error, generation = struct.unpack_from(">hi", reply, 8)
        if error:
            raise RuntimeError(f"a member that joined got error {error}")
        _, at = _text_at(reply, 14)
        leader, at = _text_at(reply, at)
        self._id, at = _text_at(reply, at)
        assignments = struct.pack(">i", 0)
        if leader == self._id:
            ids = _member_ids(reply, at)
            shares = [text(member_id) + struct.pack(">i", len(ASSIGNMENT)) + ASSIGNMENT for member_id in ids]
            assignments = struct.pack(">i", len(ids)) + b"".join(shares)
        body = self._group + struct.pack(">i", generation) + text(self._id) + assignments
        self._socket.sendall(framed(header(SYNC, 2) + body))

    def receive_assignment(self) -> None:
        reply = receive_frame(self._socket)
        error, size = struct.unpack_from(">hi", reply, 8)
        if error or size != len(ASSIGNMENT):
            raise RuntimeError(f"a member that asked for its assignment got error {error} and {size} bytes")


def _text_at(reply: bytes, at: int) -> tuple[str, int]:
    end = at + 2 + int.from_bytes(reply[at : at + 2], "big")
    return reply[at + 2 : end].decode(), end


def _member_ids(reply: bytes, at: int) -> list[str]:
    (count,) = struct.unpack_from(">i", reply, at)
    at += 4
    ids = []
    for _ in range(count):
        member_id, at = _text_at(reply, at)
        ids.append(member_id)
        (size,) = struct.unpack_from(">i", reply, at)
        at += 4 + size
    return ids


def rebalance_ms(members: list[Member], subscription: int) -> float:
    begun_s = time.perf_counter()
    for member in members:
        member.send_join(subscription)
    for member in members:
        member.answer_join()
    for member in members:
        member.receive_assignment()
    return (time.perf_counter() - begun_s) * 1000


def main() -> None:
    port, group, count, rounds = sys.argv[1:]
    members = [Member(int(port), group) for _ in range(int(count))]
    rebalance_ms(members, 0)  # This one waits for more members to come, for as long as the broker is told to.
    times_ms = [rebalance_ms(members, number) for number in range(1, int(rounds) + 1)]
    print(json.dumps({"rebalance_ms": statistics.median(times_ms)}))


if __name__ == "__main__":
    main()
