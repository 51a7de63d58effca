"""`ottla cluster status`: what it makes of the descriptions a cluster gives."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys

import pytest

from ottla.base.types import Uuid
from ottla.cli import cluster_status
from ottla.cli.cluster_status import ClusterStatus, as_json, as_text, status_of
from ottla.cli.main import main
from ottla.client.core.admin.types import ClusterDescription, TopicDescription
from ottla.client.core.metadata import BrokerAddress
from ottla.client.core.topic_info import PartitionInfo
from tests.broker_process import BrokerProcess
from tests.own_thread import patch_own_thread
from tests.unit.cli.scripted import Answering


def partition(index: int, leader: int, replicas: tuple[int, ...], isr: tuple[int, ...]) -> PartitionInfo:
    return PartitionInfo(index, leader, 4, replicas, isr, ())


CLUSTER = ClusterDescription("abc", 2, {1: BrokerAddress(1, "h1", 9092, "r1"), 2: BrokerAddress(2, "h2", 9092, None)})
TOPIC = TopicDescription(
    "t",
    Uuid(bytes(16)),
    False,
    (partition(0, 1, (1, 2), (1, 2)), partition(1, 2, (2, 3), (2,)), partition(2, -1, (3, 1), (3,))),
)


def test_what_is_wrong_is_found() -> None:
    assert as_json(status_of(CLUSTER, [TOPIC])) == {
        "cluster_id": "abc",
        "controller": 2,
        "topics": 1,
        "partitions": 3,
        "brokers": [
            _broker(1, "h1:9092", "r1", leads=1, replicas=2, in_sync=1, is_alive=True),
            _broker(2, "h2:9092", None, leads=1, replicas=2, in_sync=2, is_alive=True),
            _broker(3, "", None, leads=0, replicas=2, in_sync=1, is_alive=False),
        ],
        "under_replicated": [
            {"partition": "t-1", "leader": 2, "replicas": [2, 3], "isr": [2]},
            {"partition": "t-2", "leader": -1, "replicas": [3, 1], "isr": [3]},
        ],
        "offline": [{"partition": "t-2", "leader": -1, "replicas": [3, 1], "isr": [3]}],
    }


def _broker(broker_id: int, address: str, rack: str | None, **counts: int) -> dict[str, object]:
    return {"broker_id": broker_id, "address": address, "rack": rack, **counts}


def cells(text: str) -> list[list[str]]:
    """The rows of its tables."""
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if "│" in line]


def test_people_can_read_it() -> None:
    text = as_text(status_of(CLUSTER, [TOPIC]), in_colour=False)
    assert "cluster abc: controlled by broker 2, 1 topics with 3 partitions" in text
    assert "1 partitions without a leader" in text and "2 partitions under-replicated" in text
    assert cells(text) == [
        ["1", "h1:9092", "r1", "alive", "1", "2", "1"],
        ["2", "h2:9092", "-", "alive, controller", "1", "2", "2"],
        ["3", "-", "-", "not alive", "0", "2", "1"],
        ["t-2", "none", "3, 1", "3"],
        ["t-1", "2", "2, 3", "2"],
        ["t-2", "none", "3, 1", "3"],
    ]
    assert "\x1b" not in text
    assert "\x1b" in as_text(status_of(CLUSTER, [TOPIC]), in_colour=True)
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize(("wrong", "listed", "more"), [(20, 20, False), (21, 20, True)])
def test_of_many_partitions_with_something_wrong_some_are_named(wrong: int, listed: int, more: bool) -> None:
    topic = TOPIC._replace(partitions=tuple(partition(index, 0, (0, 1), (0,)) for index in range(wrong)))
    rows = cells(as_text(status_of(CLUSTER._replace(brokers={0: CLUSTER.brokers[1]}), [topic]), in_colour=False))
    assert [row[0] for row in rows if row[0].startswith("t-")] == [f"t-{index}" for index in range(listed)]
    assert [row[1] for row in rows if row[0].startswith("t-")] == ["0"] * listed
    assert any(row[0] == "… and 1 more" for row in rows) is more


def test_a_well_cluster_has_nothing_wrong() -> None:
    text = as_text(status_of(CLUSTER._replace(controller_id=0), []), in_colour=False)
    assert "no partitions without a leader" in text and "no partitions under-replicated" in text
    assert "controlled by broker 0" in text
    assert "controlled by nobody" in as_text(status_of(CLUSTER._replace(controller_id=-1), []), in_colour=False)


def test_it_is_shown_once_as_asked_for(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    server = ("--bootstrap-server", broker.bootstrap)
    assert main(["cluster", "status", *server]) == 0
    assert capsys.readouterr().out.startswith("cluster ")
    assert main(["cluster", "status", *server, "-o", "json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert [one["address"] for one in json.loads(line)["brokers"]] == [broker.bootstrap]


def test_without_anything_to_do_it_helps(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster"]) == 2
    said = capsys.readouterr()
    assert "name exactly one of status, add-broker, remove-broker, restart" in said.err


def test_who_watches_is_shown_what_has_changed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = itertools.count(1)

    async def read(admin: object) -> ClusterStatus:
        number = next(rounds)
        if number == 4:
            raise KeyboardInterrupt
        return status_of(CLUSTER._replace(controller_id=number), [])

    monkeypatch.setattr(cluster_status, "read_status", read)
    monkeypatch.setattr(cluster_status, "_INTERVAL_S", 0)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(cluster_status._watch(None))  # type: ignore[arg-type]
    assert "controlled by broker 3" in capsys.readouterr().out


@pytest.fixture
def statuses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Each time it is looked, another broker is in control; the fourth look is the last. How long is waited for it."""
    waits: list[float] = []
    rounds = itertools.count(1)

    async def read(admin: object) -> ClusterStatus:
        number = next(rounds)
        if number == 4:
            raise KeyboardInterrupt
        return status_of(CLUSTER._replace(controller_id=number), [])

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(cluster_status, "read_status", read)
    patch_own_thread(monkeypatch, asyncio, "sleep", sleep)
    return waits


@pytest.mark.parametrize("output", ["json", "tsv", "table"])
def test_who_does_not_watch_is_shown_it_once(
    statuses: list[float], answering: Answering, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = answering(None)
    code, shown, error = run("cluster", "status", "-o", output)
    assert (code, error, statuses) == (0, "", []) and run.configs[0]["client.id"] == "ottla-cluster"
    assert ("abc" in shown) is (output != "tsv")


@pytest.mark.parametrize("at_terminal", [False, True])
def test_programs_that_watch_get_a_line_a_second(
    statuses: list[float], answering: Answering, at_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = answering(None)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: at_terminal)
    code, shown, error = run("cluster", "status", "--watch", "-o", "json")
    assert (code, error) == (130, "")
    assert [json.loads(line)["controller"] for line in shown.splitlines()] == [1, 2, 3]
    assert statuses == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("at_terminal", [False, True])
def test_tables_change_in_place_in_a_terminal(
    statuses: list[float], answering: Answering, at_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched: list[object] = []

    async def watch(admin: object) -> None:
        watched.append(admin)

    run = answering("the client")
    monkeypatch.setattr(cluster_status, "_watch", watch)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: at_terminal)
    code, shown, _ = run("cluster", "status", "--watch")
    assert (code, watched) == ((0, ["the client"]) if at_terminal else (130, []))
    assert shown.count("controlled by broker") == (0 if at_terminal else 3)


def test_what_is_watched_is_in_colour(statuses: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool | None] = []

    def text(found: ClusterStatus, *, in_colour: bool | None = None) -> str:
        asked.append(in_colour)
        return "the status"

    monkeypatch.setattr(cluster_status, "as_text", text)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(cluster_status._watch(None))  # type: ignore[arg-type]
    assert asked == [True, True, True] and statuses == [1.0, 1.0, 1.0]


def test_columns_have_names() -> None:
    text = as_text(status_of(CLUSTER, [TOPIC]), in_colour=False)
    heads = [[cell.strip() for cell in line.strip("┃").split("┃")] for line in text.splitlines() if "┃" in line]
    of_partitions = ["partition", "leader", "replicas", "in sync"]
    assert heads == [
        ["broker", "address", "rack", "state", "leads", "replicas", "in sync"],
        of_partitions,
        of_partitions,
    ]


def test_what_is_wrong_is_red() -> None:
    text = as_text(status_of(CLUSTER, [TOPIC]), in_colour=True)
    red = [part.partition("\x1b[0m")[0] for part in text.split("\x1b[1;31m")[1:]]
    assert red == ["not alive", "1 partitions without a leader", "2 partitions under-replicated"]
