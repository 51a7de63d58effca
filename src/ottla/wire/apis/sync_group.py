"""SyncGroup: the leader hands in the assignment and every member fetches its own.

3 knows static members, 4 is flexible, 5 carries protocol type and name so that a mismatch is noticed.
"""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, bytes_, int16, int32, string
from ottla.wire.message import Request, Response, Struct


class SyncGroupRequestAssignment(Struct):
    member_id: str = string()
    assignment: bytes = bytes_()


class SyncGroupRequest(Request, api=ApiKey.SYNC_GROUP, versions="0-5", flexible="4+"):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(versions="3+", nullable="3+", default=None)
    protocol_type: str | None = string(versions="5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string(versions="5+", nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Response, api=ApiKey.SYNC_GROUP, versions="0-5", flexible="4+"):
    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string(versions="5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string(versions="5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes = bytes_()
