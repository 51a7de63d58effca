"""A partition's leader: what its replicas hold, and how far the partition is committed.

The high watermark is the lowest log end offset in the in-sync set and never goes back while this leader leads. The
machine knows offsets only; whoever owns the log tells it what was appended and takes the new high watermark from it.
"""

from __future__ import annotations

from collections.abc import Iterable


class PartitionLeader:
    def __init__(
        self,
        *,
        local_id: int,
        leader_epoch: int,
        isr: Iterable[int],
        log_end_offset: int,
        high_watermark: int,
        min_insync_replicas: int,
    ) -> None:
        self.local_id = local_id
        self.leader_epoch = leader_epoch
        self.epoch_start_offset = log_end_offset
        self.isr = frozenset(isr)
        self.min_insync_replicas = min_insync_replicas
        self.high_watermark = high_watermark
        # A follower's end offset is unknown until it fetches in this epoch: nothing new is committed before that.
        self._end_offsets = dict.fromkeys(self.isr, high_watermark)
        self._end_offsets[local_id] = log_end_offset
        self._advance()

    def appended(self, log_end_offset: int) -> int:
        """The leader's own log has grown; returns the high watermark."""
        self._end_offsets[self.local_id] = log_end_offset
        return self._advance()

    def isr_changed(self, isr: Iterable[int]) -> int:
        self.isr = frozenset(isr)
        self._end_offsets = {
            replica: self._end_offsets.get(replica, self.high_watermark) for replica in {*self.isr, self.local_id}
        }
        return self._advance()

    @property
    def has_enough_replicas(self) -> bool:
        """Whether an acks=all write may be accepted now."""
        return len(self.isr) >= self.min_insync_replicas

    @property
    def commits_alone(self) -> bool:
        """Whether what the leader appends is committed at once, because nobody else is in sync and nobody must be."""
        return len(self.isr) == 1 >= self.min_insync_replicas and self.local_id in self.isr

    def _advance(self) -> int:
        # Below min.insync.replicas nothing is newly committed: what one survivor holds may be lost with it (KIP-966).
        if len(self.isr) >= self.min_insync_replicas:
            end_offsets = self._end_offsets
            committed = min(end_offsets.values()) if len(end_offsets) > 1 else end_offsets[self.local_id]
            if committed > self.high_watermark:
                self.high_watermark = committed
        return self.high_watermark
