"""Encoded topics of Metadata replies, kept until the cluster changes."""

from __future__ import annotations

MetadataKey = tuple[str, int, str]
"""Topic, version of the API, listener: what an encoded topic depends on besides the cluster itself."""


class MetadataCache:
    def __init__(self) -> None:
        self._generation = -1
        self._encoded: dict[MetadataKey, bytes] = {}

    def get(self, generation: int, key: MetadataKey) -> bytes | None:
        if generation != self._generation:
            self._encoded.clear()
            self._generation = generation
        return self._encoded.get(key)

    def put(self, key: MetadataKey, encoded: bytes) -> None:
        """Only right after a `get` that found nothing: that is what fixes the generation."""
        self._encoded[key] = encoded
