"""Fetch by hand, versions 4-17: the public names of `fetch_request` and `fetch_response`."""

from ottla.wire.fused.fetch_request import FetchPartition, FetchPlan, TopicRef, decode_fetch
from ottla.wire.fused.fetch_response import FetchResult, Piece, Records, encode_fetch_response

__all__ = [
    "FetchPartition",
    "FetchPlan",
    "FetchResult",
    "Piece",
    "Records",
    "TopicRef",
    "decode_fetch",
    "encode_fetch_response",
]
