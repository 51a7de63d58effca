"""Settings about the broker's identity, topics, replicas and the controller."""

from __future__ import annotations

from ottla.base.options import Between, Matching, Option, Type, Update
from ottla.broker.config.keys.log import RELEASE
from ottla.broker.config.keys.reasons import NO_JAVA_CLASSES, NO_KRAFT

RACK_AWARE_SELECTOR = "RackAwareReplicaSelector"

_CLUSTER = Update.CLUSTER_WIDE
_BROKER_VERSIONS = "brokers agree on versions request by request"

OPTIONS = (
    Option(
        "broker.id",
        Type.INT,
        -1,
        "The broker's number in the cluster. -1: generated at the first start and kept in meta.properties.",
        importance="high",
    ),
    Option(
        "node.id",
        Type.INT,
        -1,
        "Another name of `broker.id`, which Kafka uses with KRaft. If both are set they must agree.",
        importance="high",
    ),
    Option(
        "broker.id.generation.enable", Type.BOOLEAN, True, "Whether a broker without a number may have one generated."
    ),
    Option(
        "reserved.broker.max.id",
        Type.INT,
        1000,
        "The highest number that can be set by hand; generated ones start above it.",
        Between(0),
    ),
    Option(
        "broker.rack",
        Type.STRING,
        None,
        "Where the broker stands. Replicas of a partition are spread over racks, and consumers can read from a "
        "replica in theirs.",
    ),
    Option(
        "inter.broker.protocol.version",
        Type.STRING,
        "3.9",
        "The protocol level Kafka brokers hold to during a rolling upgrade.",
        RELEASE,
        no_effect=_BROKER_VERSIONS,
    ),
    Option(
        "num.partitions", Type.INT, 1, "Partitions of a topic that is created without a number being given.", Between(1)
    ),
    Option(
        "default.replication.factor",
        Type.INT,
        1,
        "Replicas of each partition of a topic that is created without a number being given.",
    ),
    Option(
        "auto.create.topics.enable",
        Type.BOOLEAN,
        True,
        "Whether asking for a topic that does not exist creates it (if the client allows it too).",
        importance="high",
    ),
    Option("delete.topic.enable", Type.BOOLEAN, True, "Whether topics can be deleted.", importance="high"),
    Option(
        "create.topic.policy.class.name",
        Type.CLASS,
        None,
        "A class that may refuse the creation of a topic.",
        importance="low",
        refused=NO_JAVA_CLASSES,
    ),
    Option(
        "alter.config.policy.class.name",
        Type.CLASS,
        None,
        "A class that may refuse a change of configuration.",
        importance="low",
        refused=NO_JAVA_CLASSES,
    ),
    Option(
        "num.replica.fetchers",
        Type.INT,
        1,
        "How many connections a follower uses to fetch from each leader broker.",
        importance="high",
        update=_CLUSTER,
    ),
    Option(
        "replica.fetch.max.bytes",
        Type.INT,
        1048576,
        "Bytes a follower asks for per partition; a first batch that is larger still comes whole.",
        Between(0),
    ),
    Option(
        "replica.fetch.min.bytes",
        Type.INT,
        1,
        "Bytes a leader gathers before it answers a follower, unless the wait ends first.",
        importance="high",
    ),
    Option(
        "replica.fetch.wait.max.ms",
        Type.INT,
        500,
        "The longest a leader holds a follower's fetch. It must be less than `replica.lag.time.max.ms`, else "
        "quiet partitions lose their followers.",
        importance="high",
    ),
    Option(
        "replica.fetch.response.max.bytes",
        Type.INT,
        10485760,
        "The most a reply to a follower's fetch holds, over all partitions.",
        Between(0),
    ),
    Option(
        "replica.fetch.backoff.ms",
        Type.INT,
        1000,
        "How long a follower waits after a failed fetch before it tries again.",
        Between(0),
    ),
    Option(
        "replica.lag.time.max.ms",
        Type.LONG,
        30000,
        "A follower that has not been level with its leader's log for this long leaves the in-sync replicas.",
        importance="high",
    ),
    Option(
        "replica.high.watermark.checkpoint.interval.ms",
        Type.LONG,
        5000,
        "How often high watermarks are written to disk.",
        importance="high",
    ),
    Option(
        "replica.socket.timeout.ms",
        Type.INT,
        30000,
        "How long a follower waits for an answer on its connection to a leader, besides `replica.fetch.wait.max.ms`.",
        importance="high",
    ),
    Option(
        "replica.socket.receive.buffer.bytes",
        Type.INT,
        65536,
        "Receive buffer of the connections followers fetch through. If it is not set, the system chooses.",
        importance="high",
    ),
    Option(
        "replica.selector.class",
        Type.STRING,
        None,
        "How the replica a consumer reads from is chosen. Unset: always the leader. A name ending in "
        "RackAwareReplicaSelector: one in the consumer's rack (client.rack), if it is in sync (KIP-392).",
        valid=Matching(
            rf"(.*\.)?({RACK_AWARE_SELECTOR}|LeaderSelector)",
            f"org.apache.kafka.common.replica.{RACK_AWARE_SELECTOR} or …LeaderSelector",
        ),
    ),
    Option(
        "auto.leader.rebalance.enable",
        Type.BOOLEAN,
        True,
        "Whether the controller hands leadership back to the preferred replicas from time to time.",
        importance="high",
    ),
    Option(
        "leader.imbalance.check.interval.seconds",
        Type.LONG,
        300,
        "How often the controller looks at the balance of leaders.",
        Between(1),
        importance="high",
    ),
    Option(
        "leader.imbalance.per.broker.percentage",
        Type.INT,
        10,
        "The share of partitions led by another than their preferred replica, per broker, from which on "
        "leadership is moved back.",
        importance="high",
    ),
    Option(
        "controlled.shutdown.enable",
        Type.BOOLEAN,
        True,
        "Whether a stopping broker first hands its leaderships to others.",
    ),
    Option("controlled.shutdown.max.retries", Type.INT, 3, "How often a stopping broker tries to do so."),
    Option(
        "controlled.shutdown.retry.backoff.ms",
        Type.LONG,
        5000,
        "How long it waits between those attempts.",
    ),
    Option(
        "controller.socket.timeout.ms",
        Type.INT,
        30000,
        "How long brokers have to answer the controller, and the controller to answer them.",
    ),
    Option(
        "eligible.leader.replicas.enable",
        Type.BOOLEAN,
        False,
        "KRaft: whether replicas that left the in-sync set can still be known to be safe leaders (KIP-966).",
        importance="high",
        no_effect=NO_KRAFT,
    ),
)
