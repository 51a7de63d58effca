"""Settings of one topic, and the quotas that can be set for users, clients and addresses."""

from __future__ import annotations

from ottla.base.options import MAX_INT, MAX_LONG, Between, Matching, Option, Type
from ottla.broker.config.keys.log import (
    CLEANUP_POLICY,
    GZIP_LEVEL,
    LZ4_LEVEL,
    RELEASE,
    STORED_CODEC,
    TIMESTAMP_TYPE,
    ZSTD_LEVEL,
)
from ottla.broker.config.keys.reasons import (
    NOTHING_TIERED,
    OLD_FORMATS,
)

THROTTLED_REPLICAS = Matching(r"\*|\d+:\d+", "* or partition:broker pairs")

TOPIC = (
    Option(
        "cleanup.policy",
        Type.LIST,
        ("delete",),
        "What becomes of old data: `delete` removes whole segments by age and size, `compact` keeps the last "
        "record of each key; both can be given.",
        CLEANUP_POLICY,
    ),
    Option(
        "compression.type",
        Type.STRING,
        "producer",
        "The codec the log is stored with. `producer` stores batches as they came; any other value makes the "
        "broker recompress those that differ.",
        STORED_CODEC,
    ),
    Option(
        "compression.gzip.level",
        Type.INT,
        -1,
        "How hard gzip works when the broker compresses; -1 is the library's own choice.",
        GZIP_LEVEL,
    ),
    Option("compression.lz4.level", Type.INT, 9, "How hard lz4 works when the broker compresses.", LZ4_LEVEL),
    Option("compression.zstd.level", Type.INT, 3, "How hard zstd works when the broker compresses.", ZSTD_LEVEL),
    Option(
        "delete.retention.ms",
        Type.LONG,
        86400000,
        "How long compaction keeps tombstones and transaction markers, so that slow readers still see them.",
        Between(0),
    ),
    Option(
        "file.delete.delay.ms",
        Type.LONG,
        60000,
        "How long a file marked as deleted stays on disk, so that reads under way can finish.",
        Between(0),
    ),
    Option("flush.messages", Type.LONG, MAX_LONG, "Force the log to disk after this many records.", Between(1)),
    Option(
        "flush.ms",
        Type.LONG,
        MAX_LONG,
        "Force the log to disk when its oldest unflushed record is this old.",
        Between(0),
    ),
    Option(
        "follower.replication.throttled.replicas",
        Type.LIST,
        (),
        "Replicas throttled on the follower's side, as partition:broker pairs, or * for all.",
        THROTTLED_REPLICAS,
    ),
    Option(
        "leader.replication.throttled.replicas",
        Type.LIST,
        (),
        "Replicas throttled on the leader's side, as partition:broker pairs, or * for all.",
        THROTTLED_REPLICAS,
    ),
    Option(
        "index.interval.bytes",
        Type.INT,
        4096,
        "How many bytes of log lie between two entries of the offset index.",
        Between(0),
    ),
    Option(
        "local.retention.bytes",
        Type.LONG,
        -2,
        "How much of a tiered partition stays on local disk; -2: as much as `retention.bytes` says.",
        Between(-2),
        no_effect=NOTHING_TIERED,
    ),
    Option(
        "local.retention.ms",
        Type.LONG,
        -2,
        "How long records of a tiered partition stay on local disk; -2: as long as `retention.ms` says.",
        Between(-2),
        no_effect=NOTHING_TIERED,
    ),
    Option(
        "max.compaction.lag.ms",
        Type.LONG,
        MAX_LONG,
        "A log holding an uncompacted record older than this is compacted, whatever its ratio.",
        Between(1),
    ),
    Option(
        "max.message.bytes",
        Type.INT,
        1048588,
        "The largest record batch accepted, as compressed by the producer and including its 12 leading bytes.",
        Between(0),
    ),
    Option(
        "message.downconversion.enable",
        Type.BOOLEAN,
        True,
        "Whether records are converted for consumers that only know an older format.",
        importance="low",
        no_effect=OLD_FORMATS,
    ),
    Option(
        "message.format.version", Type.STRING, "3.0-IV1", "The message format to store.", RELEASE, no_effect=OLD_FORMATS
    ),
    Option(
        "message.timestamp.after.max.ms",
        Type.LONG,
        MAX_LONG,
        "How much newer than the broker's clock a CreateTime may be; a batch outside the limit is refused.",
        Between(0),
    ),
    Option(
        "message.timestamp.before.max.ms",
        Type.LONG,
        MAX_LONG,
        "How much older than the broker's clock a CreateTime may be; a batch outside the limit is refused.",
        Between(0),
    ),
    Option(
        "message.timestamp.difference.max.ms",
        Type.LONG,
        MAX_LONG,
        "One limit for both directions, used where the newer two are not set.",
        Between(0),
        deprecated="`message.timestamp.before.max.ms` and `message.timestamp.after.max.ms`",
    ),
    Option(
        "message.timestamp.type",
        Type.STRING,
        "CreateTime",
        "Whether records keep the producer's time (CreateTime) or get the broker's (LogAppendTime).",
        TIMESTAMP_TYPE,
    ),
    Option(
        "min.cleanable.dirty.ratio",
        Type.DOUBLE,
        0.5,
        "The share of the log not yet compacted from which on compaction is worth it.",
        Between(0, 1),
    ),
    Option(
        "min.compaction.lag.ms",
        Type.LONG,
        0,
        "Records younger than this are left alone by compaction.",
        Between(0),
    ),
    Option(
        "min.insync.replicas",
        Type.INT,
        1,
        "With acks=all, a write needs this many replicas in sync (the leader counts), else it is refused.",
        Between(1),
    ),
    Option("preallocate", Type.BOOLEAN, False, "Reserve a new segment's full size on disk when it is created."),
    Option(
        "remote.log.copy.disable",
        Type.BOOLEAN,
        False,
        "Whether a tiered topic stops copying new segments.",
        no_effect=NOTHING_TIERED,
    ),
    Option(
        "remote.log.delete.on.disable",
        Type.BOOLEAN,
        False,
        "Whether remote data is deleted when tiering is switched off.",
        no_effect=NOTHING_TIERED,
    ),
    Option("remote.storage.enable", Type.BOOLEAN, False, "Whether the topic is tiered.", refused=NOTHING_TIERED),
    Option(
        "retention.bytes",
        Type.LONG,
        -1,
        "Oldest segments are deleted while a partition is larger than this; -1 sets no limit.",
    ),
    Option(
        "retention.ms",
        Type.LONG,
        604800000,
        "Segments whose newest record is older than this are deleted; -1 keeps them for ever.",
        Between(-1),
    ),
    Option(
        "segment.bytes",
        Type.INT,
        1073741824,
        "A segment that would grow past this size is closed and a new one begun.",
        Between(14),
    ),
    Option(
        "segment.index.bytes",
        Type.INT,
        10485760,
        "The largest size of an index file; a full index makes the segment roll.",
        Between(4),
    ),
    Option(
        "segment.jitter.ms",
        Type.LONG,
        0,
        "The most that is randomly taken off `segment.ms`, so that many segments do not roll at once.",
        Between(0),
    ),
    Option(
        "segment.ms",
        Type.LONG,
        604800000,
        "A segment is closed once this much time, by the timestamps of its records, has passed since its first one.",
        Between(1),
    ),
    Option(
        "unclean.leader.election.enable",
        Type.BOOLEAN,
        False,
        "Whether a replica that is not in sync may lead when no other is left. Records may be lost.",
    ),
)

QUOTA = (
    Option(
        "producer_byte_rate",
        Type.LONG,
        MAX_LONG,
        "Bytes per second that producers of the user or client may send to one broker.",
    ),
    Option(
        "consumer_byte_rate",
        Type.LONG,
        MAX_LONG,
        "Bytes per second that consumers of the user or client may fetch from one broker.",
    ),
    Option(
        "request_percentage",
        Type.DOUBLE,
        2147483647.0,
        "Share of one broker's time, in percent, that requests of the user or client may take.",
    ),
    Option(
        "controller_mutation_rate",
        Type.DOUBLE,
        2147483647.0,
        "Partitions per second the user or client may create, add or delete.",
    ),
    Option(
        "connection_creation_rate",
        Type.INT,
        MAX_INT,
        "Connections per second that may come from the address.",
        Between(0),
    ),
)
