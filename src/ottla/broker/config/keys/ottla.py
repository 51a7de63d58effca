"""Settings that Kafka does not have. Their names begin with `ottla.`, so none of Kafka's will ever meet them."""

from __future__ import annotations

from ottla.base.options import Between, OneOf, Option, Type, Update
from ottla.broker.config.log_levels import LogLevels

OPTIONS = (
    Option(
        "ottla.cluster.dir",
        Type.STRING,
        None,
        "The directory in which the metadata store of a local cluster is served; `ottla start --brokers` sets it. "
        "Unset: the broker is a cluster of its own.",
    ),
    Option(
        "ottla.log.level",
        Type.LIST,
        ("INFO",),
        "What the broker writes to its log: the lowest level, and others for single loggers, as in "
        "`INFO,ottla.broker.coordinators=DEBUG`. While it runs, levels are changed by IncrementalAlterConfigs for a "
        "broker logger (`kafka-configs.sh --entity-type broker-loggers`).",
        LogLevels(),
    ),
    Option(
        "ottla.slow.request.ms",
        Type.LONG,
        1000,
        "A request that takes this long is named in the log, as is a time in which the whole broker stood still. "
        "Requests that wait on purpose (rebalances) and plain produces and fetches are not timed. 0: nothing is.",
        Between(0),
        update=Update.CLUSTER_WIDE,
    ),
    Option(
        "ottla.zookeeper.credentials",
        Type.PASSWORD,
        None,
        "How this broker proves to ZooKeeper who it is, as user:password. All brokers of a cluster need the same.",
    ),
    Option(
        "ottla.zookeeper.auth",
        Type.STRING,
        "digest",
        "What becomes of these credentials: `digest` tells them to ZooKeeper, `sasl` proves them by DIGEST-MD5.",
        OneOf("digest", "sasl"),
    ),
)
