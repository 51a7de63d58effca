"""The settings of a log: their defaults, and what follows from several of them."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.config.broker_config import BrokerConfig
from ottla.broker.config.topics import topic_config
from ottla.log.config import INT64_MAX, LOG_APPEND_TIME, LogConfig


def test_a_log_without_settings_is_one_of_a_topic_without_settings() -> None:
    assert topic_config({}, BrokerConfig({})) == LogConfig()


@pytest.mark.parametrize(
    ("policy", "lag_ms", "roll_ms"),
    [({"delete"}, 300, 500), ({"compact"}, 300, 300), ({"compact", "delete"}, 700, 500), ({"compact"}, INT64_MAX, 500)],
)
def test_only_compacted_segments_are_closed_before_their_records_wait_too_long(
    policy: set[str], lag_ms: int, roll_ms: int
) -> None:
    config = LogConfig(segment_ms=500, max_compaction_lag_ms=lag_ms, cleanup_policy=frozenset(policy))
    assert config.roll_ms == roll_ms
    assert (config.is_compacted, config.deletes_old_segments) == ("compact" in policy, "delete" in policy)


@pytest.mark.parametrize(
    ("settings", "codec", "level"),
    [
        ({}, "gzip", None),
        ({}, "lz4", 9),
        ({}, "zstd", 3),
        ({}, "snappy", None),
        ({}, "none", None),
        ({"compression_gzip_level": 1}, "gzip", 1),
        ({"compression_gzip_level": 0}, "gzip", 0),
        ({"compression_lz4_level": 1}, "lz4", 1),
        ({"compression_zstd_level": -5}, "zstd", -5),
    ],
)
def test_the_level_belongs_to_its_codec(settings: dict[str, Any], codec: str, level: int | None) -> None:
    assert LogConfig(**settings).compression_level(codec) == level


def test_who_stamps_the_time() -> None:
    assert LogConfig(message_timestamp_type=LOG_APPEND_TIME).stamps_append_time
    assert not LogConfig().stamps_append_time
