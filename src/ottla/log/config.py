"""The settings of one partition's log, already parsed and defaulted. Parsing and documentation live with the broker."""

from __future__ import annotations

from dataclasses import dataclass

INT64_MAX = 2**63 - 1
PRODUCER_CODEC = "producer"
CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True, slots=True)
class LogConfig:
    """One field per topic setting, named after it; `producer_id_expiration_ms` is the broker's."""

    max_message_bytes: int = 1_048_588
    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10_485_760
    index_interval_bytes: int = 4096
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    compression_type: str = PRODUCER_CODEC
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_timestamp_type: str = CREATE_TIME
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = INT64_MAX
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    file_delete_delay_ms: int = 60_000
    preallocate: bool = False
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    min_cleanable_dirty_ratio: float = 0.5
    producer_id_expiration_ms: int = 86_400_000

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes_old_segments(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """How old a segment gets: what is in it is compacted only when it is closed."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms

    @property
    def stamps_append_time(self) -> bool:
        return self.message_timestamp_type == LOG_APPEND_TIME

    def compression_level(self, codec_name: str) -> int | None:
        """The level to rebuild batches with; None leaves the choice to the codec."""
        match codec_name:
            case "gzip":
                return None if self.compression_gzip_level == -1 else self.compression_gzip_level
            case "lz4":
                return self.compression_lz4_level
            case "zstd":
                return self.compression_zstd_level
            case _:
                return None
