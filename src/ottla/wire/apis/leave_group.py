"""LeaveGroup: members leave a classic group. 3 takes many at once, 4 is flexible, 5 takes a reason."""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, int16, int32, string
from ottla.wire.message import Request, Response, Struct


class MemberIdentity(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(nullable="3+", default=None)
    reason: str | None = string(versions="5+", nullable="5+", default=None, ignorable=True)


class LeaveGroupRequest(Request, api=ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+"):
    group_id: str = string()
    member_id: str = string(versions="0-2")
    members: list[MemberIdentity] = array(MemberIdentity, versions="3+")


class MemberResponse(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(nullable="3+")
    error_code: int = int16()


class LeaveGroupResponse(Response, api=ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+"):
    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, versions="3+")
