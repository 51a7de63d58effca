"""Heartbeat: a member of a classic group is alive. 3 knows static members, 4 is flexible."""

from __future__ import annotations

from ottla.wire.api_keys import ApiKey
from ottla.wire.fields import int16, int32, string
from ottla.wire.message import Request, Response


class HeartbeatRequest(Request, api=ApiKey.HEARTBEAT, versions="0-4", flexible="4+"):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(versions="3+", nullable="3+", default=None)


class HeartbeatResponse(Response, api=ApiKey.HEARTBEAT, versions="0-4", flexible="4+"):
    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    error_code: int = int16()
