"""Settings of a single group."""

from __future__ import annotations

from ottla.base.options import Between, Option, Type

GROUP = (
    Option(
        "consumer.session.timeout.ms",
        Type.INT,
        45000,
        "A member of this KIP-848 group that is silent for this long is removed.",
        Between(1),
    ),
    Option(
        "consumer.heartbeat.interval.ms",
        Type.INT,
        5000,
        "How often members of this KIP-848 group are told to send heartbeats.",
        Between(1),
    ),
)
