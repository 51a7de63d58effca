"""Commands that look after a cluster, in what a broker alone cannot show: several brokers, refusals, old records.
What brokers answer is scripted."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition, Uuid
from ottla.client.core.admin.outcomes import Outcomes
from ottla.client.core.admin.types import (
    ElectionType,
    LogDirDescription,
    OffsetSpec,
    ReplicaInfo,
    TopicDescription,
)
from ottla.client.core.metadata import BrokerAddress
from ottla.client.core.topic_info import PartitionInfo
from ottla.client.errors import ClientError
from tests.unit.cli.scripted import Answering, Scripted

T0, T1, X0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("__x", 0)
BROKERS = {number: BrokerAddress(number, f"h{number}", 9092, None) for number in (1, 2)}
JAVA = "org.apache.kafka.common.errors."


class Cluster:
    """Two brokers, a topic of two partitions and an internal one."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.errors: dict[Any, ClientError] = {}
        self.offsets = {T0: 5, T1: 0, X0: 7}
        self.log_dirs: dict[int, dict[str, LogDirDescription]] = {}

    async def describe_cluster(self) -> Any:
        return SimpleNamespace(brokers={2: BROKERS[2], 1: BROKERS[1]})

    async def describe_topics(self) -> Any:
        infos = [PartitionInfo(index, 1, 0, (1,), (1,), ()) for index in range(2)]
        t = TopicDescription("t", Uuid(bytes(16)), False, tuple(infos))
        return Outcomes({"t": t, "__x": TopicDescription("__x", Uuid(bytes(16)), True, (infos[0],))})

    async def list_offsets(self, wanted: Mapping[TopicPartition, Any]) -> Any:
        self.asked.append(wanted)
        return Outcomes({tp: self.errors.get(tp, SimpleNamespace(offset=self.offsets[tp])) for tp in wanted})

    async def delete_records(self, wanted: Mapping[TopicPartition, int]) -> Any:
        self.asked.append(wanted)
        return Outcomes({tp: self.errors.get(tp, before) for tp, before in wanted.items()})

    async def describe_log_dirs(self, brokers: list[int]) -> Any:
        self.asked.append(brokers)
        return Outcomes({broker: self.log_dirs.get(broker, {}) for broker in brokers})

    async def api_versions(self) -> Any:
        return Outcomes(
            {
                BROKERS[2]: {18: range(4)},
                BROKERS[1]: self.errors.get("api", {3: range(2, 13)}),
            }
        )

    async def elect_leaders(self, wanted: Collection[TopicPartition] | None, *, kind: ElectionType) -> Any:
        self.asked.append((wanted, kind))
        return Outcomes({tp: self.errors.get(tp) for tp in (T1, T0, X0)})


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def run(cluster: Cluster, answering: Answering) -> Scripted:
    return answering(cluster)


def refused(code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR, text: str = "refused") -> ClientError:
    return ClientError(text, code=code)


# Offsets


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ([], {T0: OffsetSpec.LATEST, T1: OffsetSpec.LATEST, X0: OffsetSpec.LATEST}),
        (["get", "t"], {T0: OffsetSpec.LATEST, T1: OffsetSpec.LATEST}),
        (["t", "--time", "earliest", "--partitions", "1"], {T1: OffsetSpec.EARLIEST}),
        (["--topic", "t", "--time", "-3", "--partitions", "0"], {T0: OffsetSpec.MAX_TIMESTAMP}),
        (["--topic-partitions", "t:1", "--time", "earliest-local"], {T1: OffsetSpec.EARLIEST_LOCAL}),
        (["--topic-partitions", "t:1", "--time", "-5"], {T1: OffsetSpec.LATEST_TIERED}),
        (["--topic-partitions", "t:0", "--time", "0"], {T0: 0}),
        (["--topic-partitions", "t:0", "--time", "1970-01-02"], {T0: 86_400_000}),
        (["--exclude-internal-topics"], {T0: OffsetSpec.LATEST, T1: OffsetSpec.LATEST}),
    ],
)
def test_which_offsets_are_asked_for(
    run: Scripted, cluster: Cluster, arguments: list[str], asked: dict[TopicPartition, int]
) -> None:
    code, shown, error = run("offsets", *arguments)
    assert (code, error, cluster.asked) == (0, "", [asked])
    assert sorted(shown.splitlines()) == sorted(f"{tp.topic}:{tp.partition}:{cluster.offsets[tp]}" for tp in asked)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["t", "u"], 2, "Error: 'u' is not understood"),
        (["t", "--topic", "u"], 2, "Error: 't' is not understood"),
        (["--topic-partitions", "t:0", "--partitions", "0"], 2, "--topic-partitions cannot be used with --topic or"),
        (["t", "--topic-partitions", "t:0"], 2, "--topic-partitions cannot be used with --topic or --partitions"),
        (["t", "--time", "-6"], 2, "--time '-6' is no place in a partition"),
        (["t", "--time", "-x"], 2, "--time"),
        (["tt"], 1, "topic 'tt' does not exist; did you mean 't'?"),
        (["t", "--partitions", "7"], 1, "no partition matches"),
        (["--partitions", "7"], 1, "no partition matches"),
        (["--topic-partitions", "u:0"], 1, "no partition matches"),
        (["("], 2, "'(' is not a regular expression: "),
    ],
)
def test_offsets_of_what_is_not_there(run: Scripted, arguments: list[str], code: int, told: str) -> None:
    found, shown, error = run("offsets", *arguments)
    assert (found, shown) == (code, "") and told in error.splitlines()[-1]


def test_partitions_that_cannot_be_asked_are_left_out(run: Scripted, cluster: Cluster) -> None:
    cluster.errors = {T0: refused()}
    skipped = "Skip getting offsets for topic-partition t-0 due to error: refused\n"
    assert run("offsets", "t") == (1, "t:1:0\n", skipped)
    assert run("kafka-get-offsets.sh", "--topic", "t") == (0, "t:1:0\n", skipped)
    cluster.errors = {}
    cluster.offsets[T0] = -1
    assert run("offsets", "t", "-o", "tsv") == (0, "topic\tpartition\toffset\nt\t1\t0\n", "")
    told = "Error occurred: Could not match any topic-partitions with the specified filters\n"
    assert run("kafka-get-offsets.sh", "--topic", "tt") == (1, "", told)


# Records


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["t"], 2, "--before says which offset is the first to stay"),
        ([], 2, "name a TOPIC with --before, or an --offset-json-file"),
        (["t", "--before", "1", "--offset-json-file", "f"], 2, "name a TOPIC with --before, or an --offset-json-file"),
        (["t", "--before", "-1"], 2, "--before '-1' is neither an offset nor latest"),
        (["t", "--before", "3"], 2, "Delete the records before 3 in 2 partition(s) of topic 't'? Nobody can be asked"),
        (["t", "--before", "latest", "--partition", "0"], 2, "Delete all records in 1 partition(s) of topic 't'?"),
        (["t", "--before", "1", "--partition", "2"], 1, "topic 't' has no partition 2; it has 2"),
    ],
)
def test_records_that_are_not_deleted(
    run: Scripted, cluster: Cluster, arguments: list[str], code: int, told: str
) -> None:
    found, shown, error = run("delete-records", *arguments)
    assert (found, shown, cluster.asked) == (code, "", [])
    assert error.splitlines()[-1].removeprefix("Error: ").startswith(told)


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (["--before", "3", "--yes"], {T0: 3, T1: 3}),
        (["--before", "latest", "--yes"], {T0: -1, T1: -1}),
        (["--before", "latest", "--partition", "1", "--yes"], {T1: -1}),
        (["--before", "0", "--partition", "0"], {T0: 0}),
    ],
)
def test_records_that_are_deleted(
    run: Scripted, cluster: Cluster, arguments: list[str], asked: dict[TopicPartition, int]
) -> None:
    code, shown, error = run("delete-records", "t", *arguments, "-o", "tsv")
    assert (code, error, cluster.asked) == (0, "", [asked])
    rows = [f"t\t{tp.partition}\t{before}" for tp, before in asked.items()]
    assert shown.splitlines() == ["topic\tpartition\tfirst_offset", *rows]


def test_partitions_whose_records_cannot_be_deleted(run: Scripted, cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    places = [{"topic": "t", "partition": number, "offset": 3} for number in (0, 1)]
    file.write_text(json.dumps({"partitions": places, "version": 1}))
    cluster.errors = {T0: refused(ErrorCode.OFFSET_OUT_OF_RANGE)}
    rows = "topic\tpartition\tfirst_offset\nt\t1\t3\n"
    assert run("delete-records", "--offset-json-file", str(file), "-o", "tsv") == (1, rows, "refused\n")
    code, shown, error = run("kafka-delete-records.sh", "--offset-json-file", str(file))
    assert (code, error) == (0, "")
    assert shown.splitlines() == [
        "Executing records delete operation",
        "Records delete operation completed:",
        f"partition: t-0\terror: {JAVA}OffsetOutOfRangeException: The requested offset is not within the range of "
        "offsets maintained by the server.",
        "partition: t-1\tlow_watermark: 3",
    ]
    missing = run("kafka-delete-records.sh")
    assert missing == (1, "", 'Missing required argument "[offset-json-file]"\n')


# Log directories


def log_dir(path: str, error: ClientError | None = None, **sizes: int) -> LogDirDescription:
    replicas = {
        TopicPartition(name, 0): ReplicaInfo(size, lag, bool(lag)) for lag, (name, size) in enumerate(sizes.items())
    }
    return LogDirDescription(path, error, None, None, replicas)


def test_what_lies_where(run: Scripted, cluster: Cluster) -> None:
    cluster.log_dirs = {1: {"/a": log_dir("/a", t=10, b=20)}, 2: {"/c": log_dir("/c", u=30)}}
    code, shown, _ = run("log-dirs", "-o", "tsv")
    assert (code, cluster.asked) == (0, [[1, 2]])
    assert shown.splitlines()[1:] == [
        "1\t/a\tb\t0\t20\t1\ttrue",
        "1\t/a\tt\t0\t10\t0\tfalse",
        "2\t/c\tu\t0\t30\t0\tfalse",
    ]
    assert run("log-dirs", "describe", "t", "-o", "tsv")[1].splitlines()[1:] == ["1\t/a\tt\t0\t10\t0\tfalse"]
    assert run("log-dirs", "--broker-list", "2", "--topic-list", "t", "-o", "tsv")[1].splitlines()[1:] == []
    assert cluster.asked[2:] == [[2]]
    told = "topic 'tt' does not exist; did you mean 't'?\n"
    assert run("log-dirs", "tt") == (1, "", told)


def test_directories_that_are_broken(run: Scripted, cluster: Cluster) -> None:
    broken = log_dir("/a", refused(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is broken"))
    cluster.log_dirs = {1: {"/a": broken, "/b": log_dir("/b", t=1)}, 2: {"/a": broken}}
    code, shown, error = run("log-dirs", "-o", "tsv")
    assert (code, len(shown.splitlines())) == (1, 2)
    assert error == "broker 1, /a: the disk is broken; broker 2, /a: the disk is broken\n"
    code, shown, error = run("kafka-log-dirs.sh", "--describe", "--broker-list", "1", "--topic-list", "x,t")
    assert (code, error) == (0, "")
    one, other = json.loads(shown.splitlines()[-1])["brokers"][0]["logDirs"]
    assert one == {"partitions": [], "error": f"{JAVA}KafkaStorageException", "logDir": "/a"}
    replica = {"partition": "t-0", "size": 1, "offsetLag": 0, "isFuture": False}
    assert other == {"partitions": [replica], "error": None, "logDir": "/b"}


@pytest.mark.parametrize(
    ("command", "arguments", "code", "told"),
    [
        ("kafka-log-dirs.sh", [], 1, 'Missing required argument "[describe]"'),
        ("log-dirs", ["--broker-list", "1,x"], 2, "Error: --broker-list '1,x' is no list of broker ids"),
        ("log-dirs", ["--broker-list", "1,3,4"], 1, "broker 3,4 does not exist; there are 1,2"),
        (
            "kafka-log-dirs.sh",
            ["--describe", "--broker-list", "1,3,4"],
            1,
            "ERROR: The given brokers do not exist from --broker-list: 3,4. Current existent brokers: 1,2",
        ),
    ],
)
def test_directories_of_nobody(
    run: Scripted, cluster: Cluster, command: str, arguments: list[str], code: int, told: str
) -> None:
    found, shown, error = run(command, *arguments)
    assert (found, shown, cluster.asked) == (code, "", [])
    assert error.splitlines()[-1] == told


# APIs


def test_what_brokers_speak(run: Scripted, cluster: Cluster) -> None:
    code, shown, error = run("api-versions")
    lines = shown.splitlines()
    assert (code, error) == (0, "")
    assert [line for line in lines if " (id: " in line] == [
        "h1:9092 (id: 1 rack: null) -> (",
        "h2:9092 (id: 2 rack: null) -> (",
    ]
    assert any(line.startswith("\tMetadata(3): 2 to 12 [usable: 12]") for line in lines)
    rows = json.loads(run("api-versions", "-o", "json")[1])
    assert [(row["broker"], row["key"], row["min_version"], row["max_version"]) for row in rows] == [
        (1, 3, 2, 12),
        (2, 18, 0, 3),
    ]


def test_a_broker_that_does_not_say_what_it_speaks(run: Scripted, cluster: Cluster) -> None:
    cluster.errors = {"api": refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)}
    code, shown, error = run("api-versions")
    assert (code, error) == (0, "") and shown.startswith("h1:9092 (id: 1 rack: null) -> ERROR: refused\nh2:9092 ")
    code, shown, error = run("api-versions", "-o", "json")
    assert (code, [row["broker"] for row in json.loads(shown)], error) == (1, [2], "broker 1: refused\n")


# Leaders


def test_elections_end_in_three_ways(run: Scripted, cluster: Cluster) -> None:
    cluster.errors = {T1: refused(ErrorCode.ELECTION_NOT_NEEDED), X0: refused(text="__x-0: nobody is in sync")}
    code, shown, error = run("elect-leaders", "--all-topic-partitions")
    assert (code, error) == (1, "1 replica(s) could not be elected\n")
    assert shown.splitlines() == [
        "Successfully completed leader election (PREFERRED) for partitions t-0",
        "Valid replica already elected for partitions t-1",
        "Error completing leader election (PREFERRED) for partition: __x-0: nobody is in sync",
    ]
    kafka = run("kafka-leader-election.sh", "--all-topic-partitions", "--election-type", "unclean")
    failed = "Error completing leader election (UNCLEAN) for partition: __x-0: "
    assert kafka[1].splitlines()[2] == f"{failed}{JAVA}UnknownServerException: __x-0: nobody is in sync"
    assert cluster.asked == [(None, ElectionType.PREFERRED), (None, ElectionType.UNCLEAN)]
    code, shown, _ = run("elect-leaders", "t", "--partition", "1", "-o", "json")
    assert [list(row.values()) for row in json.loads(shown)] == [
        ["__x", 0, "failed", "__x-0: nobody is in sync"],
        ["t", 0, "elected", None],
        ["t", 1, "not needed", None],
    ]
    assert cluster.asked[2:] == [([T1], ElectionType.PREFERRED)]
    cluster.errors = {}
    assert run("elect-leaders", "--all-topic-partitions", "-o", "tsv")[0] == 0


def test_elections_that_make_no_sense(run: Scripted, cluster: Cluster) -> None:
    missing = "Missing required option(s): election-type\n"
    assert run("kafka-leader-election.sh", "--all-topic-partitions") == (1, "", missing)
    told = "topic 'tt' does not exist; did you mean 't'?\n"
    assert run("elect-leaders", "tt", "--partition", "0") == (1, "", told)
    assert cluster.asked == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "One and only one of the following options is required: topic, all-topic-partitions, path-to-json-file"),
        (["t", "--all-topic-partitions", "--partition", "0"], "One and only one of the following options is required"),
        (["--all-topic-partitions", "--path-to-json-file", "f"], "One and only one of the following options is"),
        (["t"], "Missing required option(s): partition"),
        (["--all-topic-partitions", "--partition", "0"], "Missing required option(s): partition"),
        (["t", "--partition", "0", "--election-type", "odd"], "argument --election-type: invalid choice: 'odd'"),
    ],
)
def test_elections_of_nothing_or_of_too_much(run: Scripted, cluster: Cluster, arguments: list[str], told: str) -> None:
    code, shown, error = run("elect-leaders", *arguments)
    assert (code, shown, cluster.asked) == (2, "", [])
    assert error.splitlines()[-1].startswith(f"Error: {told}")


def test_elections_of_a_file(run: Scripted, cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "elect.json"
    file.write_text(json.dumps({"partitions": [{"topic": "t", "partition": 1}, {"topic": "u", "partition": 0}]}))
    assert run("elect-leaders", "--path-to-json-file", str(file), "--election-type", "Unclean")[0] == 0
    assert cluster.asked == [([T1, TopicPartition("u", 0)], ElectionType.UNCLEAN)]
    file.write_text('{"partitions": []}')
    assert run("elect-leaders", "--path-to-json-file", str(file)) == (0, "", "")
    assert len(cluster.asked) == 1
    # Kafka's tool does not ask first whether the topic is there.
    kafka = ("--topic", "tt", "--partition", "0", "--election-type", "preferred")
    assert run("kafka-leader-election.sh", *kafka)[0] == 0
    assert cluster.asked[1:] == [([TopicPartition("tt", 0)], ElectionType.PREFERRED)]
