"""What is measured, how much of it, and what is owed: for every ratio a floor, and a goal to reach for."""

from __future__ import annotations

from dataclasses import dataclass, replace

MOCK_PARTITIONS = 4
SHORT_ROUNDS = 3
CLIENT_ROUNDS = 2
"""How many rounds of a case on the wire, and of whole clients, go into one round of the run. A slice of either takes
less than a second, and any one can fall into a bad moment."""


@dataclass(frozen=True)
class Target:
    floor: float
    goal: float


@dataclass(frozen=True, kw_only=True)
class ProduceCase:
    name: str
    title: str
    connections: int
    depth: int
    records: int
    requests: int
    quick_requests: int
    partitions: int = 1
    record_bytes: int = 100
    measure: str = "requests_per_s"
    unit: str = "requests/s"
    lower_is_better: bool = False
    vs_limit: Target
    vs_mock: Target


@dataclass(frozen=True, kw_only=True)
class FetchCase:
    name: str
    title: str
    partitions: int
    total_bytes: int
    quick_total_bytes: int
    vs_limit: Target
    vs_mock: Target | None
    unit: str = "MB/s"
    lower_is_better: bool = False


KAFKA_RATE_TARGET = Target(1.0, 2.0)
KAFKA_COST_TARGET = Target(1.0, 0.5)
"""Against Apache Kafka: ahead in every row, and twice as good to reach for. Costs are times and memory."""
KAFKA_FIRST_WARM_UP_S, KAFKA_WARM_UP_S = 20, 5
QUICK_KAFKA_FIRST_WARM_UP_S, QUICK_KAFKA_WARM_UP_S = 6, 1
"""Its code is compiled while it runs: once for all, and once more for each case, before anything counts."""

CLIENT_LIMIT = "bare reader"
CLIENT_SEND_LIMIT = "sink"
"""As `theirs` of a ClientCase: not a library, but what reads and does nothing else, and what only receives."""


@dataclass(frozen=True)
class ClientCase:
    """One of our ways to send or read records against a library, both named as in `LIBRARIES` of their module."""

    name: str
    title: str
    ours: str
    theirs: str
    targets: tuple[Target | None, Target | None] = (None, None)
    """With values of 100 bytes, and of a kilobyte."""


@dataclass(frozen=True, kw_only=True)
class CommitCase:
    """Commits of one partition each, by connections that speak for a group of their own.

    The mock cluster only remembers what is committed. The broker has each commit in its log before it answers.
    """

    name: str
    title: str
    connections: int
    depth: int
    requests: int
    quick_requests: int
    vs_mock: Target
    unit: str = "commits/s"
    lower_is_better: bool = False


@dataclass(frozen=True, kw_only=True)
class AbsoluteCase:
    name: str
    title: str
    unit: str
    target: Target | None
    lower_is_better: bool = True


PRODUCE_CASES = (
    ProduceCase(
        name="produce-1mb",
        title="produce, 1 MB frames, 5 in flight",
        connections=1,
        depth=5,
        records=9_500,
        requests=40,
        quick_requests=25,
        vs_limit=Target(0.70, 0.90),
        vs_mock=Target(0.5, 0.65),
    ),
    ProduceCase(
        name="produce-64kb",
        title="produce, 64 KB, 5 in flight",
        connections=1,
        depth=5,
        records=590,
        requests=400,
        quick_requests=300,
        vs_limit=Target(0.50, 0.65),
        vs_mock=Target(0.4, 0.6),
    ),
    ProduceCase(
        name="produce-16kb",
        title="produce, 16 KB, 20 in flight",
        connections=1,
        depth=20,
        records=147,
        requests=800,
        quick_requests=600,
        vs_limit=Target(0.40, 0.50),
        vs_mock=Target(0.9, 1.15),
    ),
    ProduceCase(
        name="single-50-connections",
        title="single messages, 50 connections",
        connections=50,
        depth=1,
        records=1,
        requests=20_000,
        quick_requests=8_000,
        partitions=MOCK_PARTITIONS,
        vs_limit=Target(0.35, 0.50),
        vs_mock=Target(0.55, 0.75),
    ),
    ProduceCase(
        name="single-pipelined",
        title="single messages, 100 in flight",
        connections=1,
        depth=100,
        records=1,
        requests=40_000,
        quick_requests=15_000,
        vs_limit=Target(0.50, 0.70),
        vs_mock=Target(1.2, 1.7),
    ),
    ProduceCase(
        name="latency",
        title="one message at a time, p50",
        connections=1,
        depth=1,
        records=1,
        requests=4_000,
        quick_requests=2_000,
        measure="p50_us",
        unit="µs",
        lower_is_better=True,
        vs_limit=Target(1.6, 1.35),
        vs_mock=Target(1.25, 1.1),
    ),
)

KAFKA_WARM_UP_CASES = PRODUCE_CASES[4], PRODUCE_CASES[1]
"""Before everything else: many small requests, then larger ones."""

FETCH_PARTITION_BYTES = 1_048_576
FETCH_BATCHES_PER_PARTITION = 4
"""The mock cluster keeps five megabytes of a partition."""

FETCH_CASES = (
    FetchCase(
        name="fetch-1",
        title="fetch, 1 x 1 MB",
        partitions=1,
        total_bytes=300_000_000,
        quick_total_bytes=150_000_000,
        vs_limit=Target(0.65, 0.85),
        vs_mock=Target(0.9, 1.2),
    ),
    FetchCase(
        name="fetch-4",
        title="fetch, 4 x 1 MB",
        partitions=MOCK_PARTITIONS,
        total_bytes=400_000_000,
        quick_total_bytes=200_000_000,
        vs_limit=Target(0.65, 0.85),
        vs_mock=Target(0.9, 1.2),
    ),
    FetchCase(
        name="fetch-8",
        title="fetch, 8 x 1 MB",
        partitions=8,
        total_bytes=400_000_000,
        quick_total_bytes=200_000_000,
        vs_limit=Target(0.65, 0.85),
        vs_mock=None,
    ),
)

_GUARDED = ("produce-64kb", "single-50-connections", "single-pipelined", "latency", "fetch-1", "fetch-8")
"""Small requests above all: what a request costs besides its bytes is what rules and quotas add to."""
GUARDED_TARGETS = {False: Target(0.90, 0.97), True: Target(1.10, 1.03)}
"""Against the same broker without rules and quotas, by whether lower is better."""
GUARDED_PRODUCE_CASES = tuple(
    replace(case, name=f"guarded-{case.name}", title=f"{case.title}, with rules and quotas")
    for case in PRODUCE_CASES
    if case.name in _GUARDED
)
GUARDED_FETCH_CASES = tuple(
    replace(case, name=f"guarded-{case.name}", title=f"{case.title}, with rules and quotas")
    for case in FETCH_CASES
    if case.name in _GUARDED
)

COMMIT_CASES = (
    CommitCase(
        name="groups-commits-50-connections",
        title="groups: commits, 50 connections",
        connections=50,
        depth=1,
        requests=20_000,
        quick_requests=8_000,
        vs_mock=Target(0.30, 0.50),
    ),
    CommitCase(
        name="groups-commits-pipelined",
        title="groups: commits, 100 in flight",
        connections=1,
        depth=100,
        requests=20_000,
        quick_requests=8_000,
        vs_mock=Target(0.30, 0.80),
    ),
)

REBALANCE = AbsoluteCase(
    name="groups-rebalance",
    title="groups: 100 members from joining to their assignments",
    unit="ms",
    target=Target(100, 40),
)
"""Without a peer: the mock cluster answers joins when a timer says so, and followers only before their leader."""
REBALANCE_MEMBERS = 100
REBALANCE_ROUNDS = 10

TRANSACTIONS = 300
QUICK_TRANSACTIONS = 150
TRANSACTIONS_TARGETS = {1: Target(0.5, 0.75), 10: Target(0.5, 0.75), 100: Target(0.5, 0.75)}
"""By the number of records in each. The mock cluster keeps no log of transactions and writes no markers."""

END_TO_END_MESSAGES = 160_000
END_TO_END_TARGETS = {"produce": Target(0.75, 0.9), "consume": Target(0.9, 1.0)}

CLIENT_MESSAGES = {100: 1_000_000, 1000: 300_000}
QUICK_CLIENT_MESSAGES = {100: 200_000, 1000: 60_000}
"""By the bytes of a value. The faster and slower ways to send and read get more and fewer, see `CLIENT_SHARES`.

Half a second of the fastest ways: in the first tenth a new process touches its memory for the first time. No side
writes more than 600 MB, because pages that the kernel has to find first are slow."""
CLIENT_SHARES = {
    "ottla-arrow": 2.0,
    "ottla-arrow-aio": 2.0,
    CLIENT_LIMIT: 2.0,
    CLIENT_SEND_LIMIT: 2.0,
    "kafka-python": 0.04,
    "aiokafka": 0.04,
}

CLIENT_ROW_TARGETS = (Target(1.5, 3), Target(1.5, 3))
CLIENT_ARROW_TARGETS = (Target(5, 10), None)
"""Against confluent-kafka; the other libraries are measured for information."""
CLIENT_ARROW_SEND_SHARES = (None, Target(0.50, 0.75))
CLIENT_ARROW_READ_SHARES = (None, Target(0.65, 0.85))
"""Of the limit in the same run: with a kilobyte, moving the bytes is what takes the time (docs/adr/0007)."""

SPARK_ROWS = 1_000_000
SPARK_TIMEOUT_S = 900
SPARK_READ_TARGETS = {"parquet": Target(0.25, 0.35), "kafka": Target(0.5, 1.0)}
"""Against the same rows in Parquet files, which Spark reads without leaving its process, and its own Kafka source."""
SPARK_WRITE_TARGET = Target(0.6, 0.9)
SPARK_MICRO_BATCH_TARGET = Target(1.3, 1.15)


@dataclass(frozen=True)
class PipelineCase:
    title: str
    against: str
    """The side of plain Spark; without one the target is in rows per second."""
    target: Target


PIPELINE_ROWS = 1_000_000
PIPELINE_TIMEOUT_S = 1800
PIPELINE_CASES = {
    "json": PipelineCase("Pipeline: JSON source", "from_json", Target(0.8, 0.95)),
    "csv": PipelineCase("Pipeline: CSV source", "from_csv", Target(0.8, 0.95)),
    "avro": PipelineCase("Pipeline: Avro source", "json", Target(0.3, 0.5)),
    "window": PipelineCase("Pipeline: JSON and a window per minute", "kafka", Target(1.0, 1.3)),
    "to-topic": PipelineCase("Pipeline: topic, window, topic, exactly once", "", Target(100_000, 200_000)),
    "to-sqlite": PipelineCase("Pipeline: topic, window, SQLite, exactly once", "", Target(100_000, 200_000)),
    "to-postgresql": PipelineCase("Pipeline: topic, window, PostgreSQL, exactly once", "", Target(100_000, 200_000)),
}
PIPELINE_ONCE_TARGET = Target(1.5, 1.2)

START = AbsoluteCase(name="start", title="start to first answer", unit="ms", target=Target(400, 150))
IDLE_RSS = AbsoluteCase(name="idle-rss", title="memory when idle", unit="MB", target=Target(60, 30))
WORKED_RSS = AbsoluteCase(name="worked-rss", title="memory after the load on the wire", unit="MB", target=None)
PEAK_RSS = AbsoluteCase(name="peak-rss", title="memory, peak of this run", unit="MB", target=None)
LONG_POLL = AbsoluteCase(
    name="long-poll", title="a waiting fetch gets one message, p50", unit="µs", target=Target(300, 200)
)
IDLE_CONNECTION = AbsoluteCase(
    name="idle-connection", title="memory of one idle connection (of 2,500)", unit="KB", target=None
)
IDLE_CPU = AbsoluteCase(name="idle-cpu", title="processor time with 2,500 idle connections", unit="%", target=None)
IDLE_CONNECTIONS = 2_500

AGAINST_KAFKA = (
    *(case.name for case in (*PRODUCE_CASES, *FETCH_CASES, *COMMIT_CASES)),
    *(f"transactions-{records}" for records in TRANSACTIONS_TARGETS),
    *(case.name for case in (START, IDLE_RSS, WORKED_RSS, LONG_POLL)),
    "end-to-end",
)
"""The cases that have a row against Apache Kafka, where its jars can be had."""


@dataclass(frozen=True, kw_only=True)
class ReplicatedCase:
    """acks=all to one partition with three replicas."""

    name: str
    title: str
    connections: int
    depth: int
    records: int
    requests: int
    quick_requests: int
    record_bytes: int = 100
    leader: int = 2
    """Which broker leads; the first has Apache Kafka's controller."""
    measure: str = "requests_per_s"
    unit: str = "requests/s"
    lower_is_better: bool = False


REPLICATED_CASES = (
    ReplicatedCase(
        name="replicated-1mb",
        title="three brokers, acks=all: 1 MB frames, 5 in flight",
        connections=1,
        depth=5,
        records=9_500,
        requests=80,
        quick_requests=30,
    ),
    ReplicatedCase(
        name="replicated-16kb",
        title="three brokers, acks=all: 16 KB, 20 in flight",
        connections=1,
        depth=20,
        records=147,
        requests=2_000,
        quick_requests=600,
    ),
    ReplicatedCase(
        name="replicated-single-50-connections",
        title="three brokers, acks=all: single messages, 50 connections",
        connections=50,
        depth=1,
        records=1,
        requests=10_000,
        quick_requests=3_000,
    ),
    ReplicatedCase(
        name="replicated-single-pipelined",
        title="three brokers, acks=all: single messages, 100 in flight",
        connections=1,
        depth=100,
        records=1,
        requests=15_000,
        quick_requests=5_000,
    ),
    ReplicatedCase(
        name="replicated-latency",
        title="three brokers, acks=all: one message at a time, p50",
        connections=1,
        depth=1,
        records=1,
        requests=1_000,
        quick_requests=500,
        measure="p50_us",
        unit="µs",
        lower_is_better=True,
    ),
)
REPLICATED_WARM_UPS = 6
"""Rounds that do not count, for Apache Kafka's code to be compiled."""
REPLICATED_RATE_TARGET = Target(0.7, 1.2)
REPLICATED_LATENCY_TARGET = Target(1 / 0.7, 1 / 1.2)
FAILOVER = AbsoluteCase(
    name="failover", title="three brokers: longest gap of acknowledged writes, leader killed", unit="ms", target=None
)
FAILOVER_TARGET = Target(1.0, 0.5)
REPLICATED_RSS = AbsoluteCase(
    name="replicated-rss", title="three brokers: memory after the replicated load", unit="MB", target=None
)
REPLICATED_RSS_TARGET = Target(0.2, 0.1)

GROWTH_PARTITIONS, QUICK_GROWTH_PARTITIONS = (30, 3_000), (30, 300)
GROWTH_MESSAGES = 3_000
GROWTH_IDLE = AbsoluteCase(
    name="growth-idle", title="three brokers, many partitions: processor time when idle", unit="%", target=None
)
GROWTH_COST = AbsoluteCase(
    name="growth-cost", title="three brokers, many partitions: processor time of a message", unit="µs", target=None
)
GROWTH_TARGET = Target(2.0, 1.2)
"""Against the same with few partitions, all three with three replicas each."""

CONTROLLER_FAILOVER_PARTITIONS, QUICK_CONTROLLER_FAILOVER_PARTITIONS = (1_000, 10_000), (100, 1_000)
CONTROLLER_FAILOVER = AbsoluteCase(
    name="controller-failover",
    title="a controller on ZooKeeper is lost: until another has elected all leaders, after its session",
    unit="ms",
    target=None,
)
CONTROLLER_FAILOVER_TARGET = Target(2.0, 1.0)

COMPACTION = AbsoluteCase(
    name="compaction",
    title="compaction of a log, 9 of 10 records outdated",
    unit="MB/s",
    target=None,
    lower_is_better=False,
)
COMPACTION_CPU = AbsoluteCase(
    name="compaction-cpu",
    title="compaction, for each second of processor time",
    unit="MB",
    target=None,
    lower_is_better=False,
)
COMPACTION_COPY_TARGET = Target(0.15, 0.4)
COMPACTION_KAFKA_TARGET = Target(0.7, 1.5)
