"""JoinGroup: a member asks to be in the group's next generation.

1 has a rebalance time-out of its own, 4 makes a new member come back with its issued id (KIP-394), 5 knows static
members, 6 is flexible, 7 answers with the protocol type, 8 takes a reason, 9 can tell the leader to skip assigning.
"""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import array, boolean, bytes_, int16, int32, string
from ottla.wire.message import Request, Response, Struct


class JoinGroupRequestProtocol(Struct):
    name: str = string()
    metadata: bytes = bytes_()


class JoinGroupRequest(Request, api=ApiKey.JOIN_GROUP, versions="0-9", flexible="6+"):
    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32(versions="1+", default=-1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string(versions="5+", nullable="5+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string(versions="8+", nullable="8+", default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = string(versions="5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = bytes_()


class JoinGroupResponse(Response, api=ApiKey.JOIN_GROUP, versions="0-9", flexible="6+"):
    throttle_time_ms: int = int32(versions="2+", ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string(versions="7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean(versions="9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
