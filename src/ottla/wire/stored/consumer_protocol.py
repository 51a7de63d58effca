"""What consumers put into JoinGroup and SyncGroup as opaque bytes: subscription and assignment.

Never flexible. A newer version only appends fields, so a reader takes the part it knows.
"""

from __future__ import annotations

from ottla.wire.fields import array, bytes_, int32, string
from ottla.wire.message import StoredRecord, Struct


class ConsumerProtocolTopic(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class ConsumerProtocolSubscription(StoredRecord, reads_newer=True, versions="0-3"):
    topics: list[str] = array(string)
    user_data: bytes | None = bytes_(nullable="0+", default=None)
    owned_partitions: list[ConsumerProtocolTopic] = array(ConsumerProtocolTopic, versions="1+", ignorable=True)
    generation_id: int = int32(versions="2+", default=-1, ignorable=True)
    rack_id: str | None = string(versions="3+", nullable="3+", default=None, ignorable=True)


class ConsumerProtocolAssignment(StoredRecord, reads_newer=True, versions="0-3"):
    assigned_partitions: list[ConsumerProtocolTopic] = array(ConsumerProtocolTopic)
    user_data: bytes | None = bytes_(nullable="0+", default=None)
