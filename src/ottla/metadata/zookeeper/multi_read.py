"""Many reads in one request, as servers from 3.6 on take them and kazoo does not send them.

A request costs kazoo's thread and the loop about 170 µs, whatever is in it: one for each node of ten thousand
partitions would be six seconds of a new controller's time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kazoo.exceptions import EXCEPTIONS
from kazoo.protocol import serialization
from kazoo.protocol.serialization import GetChildren, GetData, MultiHeader, int_struct, multiheader_struct

READS_MAX = 200
"""In one request: its answer holds as many nodes, which should not keep the loop for long."""
_ERROR = -1


class MultiRead:
    """Answered with what each read alone would be answered with, or with its exception."""

    type = 22

    def __init__(self, reads: Sequence[GetData | GetChildren]) -> None:
        self.reads = reads

    def serialize(self) -> bytes:
        request = bytearray()
        for read in self.reads:
            request += multiheader_struct.pack(read.type, False, -1) + read.serialize()
        return bytes(request + multiheader_struct.pack(-1, True, -1))

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> list[Any]:
        answers: list[Any] = []
        header, offset = MultiHeader.deserialize(data, offset)
        while not header.done:
            if header.type == _ERROR:
                answers.append(EXCEPTIONS[int_struct.unpack_from(data, offset)[0]]())
                offset += int_struct.size
            elif header.type == GetData.type:
                content, offset = serialization.read_buffer(data, offset)
                stat = serialization.ZnodeStat._make(serialization.stat_struct.unpack_from(data, offset))
                offset += serialization.stat_struct.size
                answers.append((content, stat))
            else:
                count = int_struct.unpack_from(data, offset)[0]
                offset += int_struct.size
                names = []
                for _ in range(count):
                    name, offset = serialization.read_string(data, offset)
                    names.append(name)
                answers.append(names)
            header, offset = MultiHeader.deserialize(data, offset)
        return answers
