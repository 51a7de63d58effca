"""Dead letters that are sent back: those that are meant, as they were, and each once, whoever is killed meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla.cli.pipeline import main
from tests.broker_process import BrokerProcess
from tests.spark.pipelines import Topics

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from ottla.spark.pipeline.redrive.letters import LetterFilter
from ottla.spark.pipeline.redrive.redrive import LetterBox, Redrive
from ottla.spark.pipeline.redrive.targets import RedriveError

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

PREFIX = "ottla.dead-letter."
HOUR_MS = 3_600_000
DESCRIPTION = """\
name: {prefix}
kafka: {{bootstrap.servers: "{bootstrap}"}}
sources:
  events:
    kind: topic
    topic: {prefix}-events
    format: json
    schema: id BIGINT
    dead_letter: {prefix}-bad
    {more}
sinks:
  out: {{kind: console}}
flows:
  shown: {{from: events, to: out}}
"""
DRIVER = """\
import sys
from ottla.spark.pipeline.redrive.letters import LetterFilter
from ottla.spark.pipeline.redrive.redrive import LetterBox, Redrive

bootstrap, topic = sys.argv[1:]
box = LetterBox(topic, "source events", {"bootstrap.servers": bootstrap})
Redrive(box, LetterFilter(), on_progress=lambda n: print(n, flush=True), letters_per_transaction=40).send()
print("done", flush=True)
"""


class Letters:
    """A topic `events` whose bad records are in `bad`, each in a partition other than it was."""

    def __init__(self, bootstrap: str, prefix: str, directory: Path) -> None:
        self.topics = Topics(bootstrap, prefix)
        self.topics.create(events=2, bad=2)
        self.began_ms = int(time.time() * 1000) - HOUR_MS
        self.box = LetterBox(self.topics.name("bad"), "source events", {"bootstrap.servers": bootstrap})
        self.path = directory / "pipeline.yaml"
        self.describe()

    def describe(self, more: str = "") -> None:
        text = DESCRIPTION.format(prefix=self.topics.prefix, bootstrap=self.topics.bootstrap, more=more)
        self.path.write_text(text)

    def put(self, numbers: Iterable[int], *, source: str = "source events", time_ms: int | None = None) -> None:
        """Letter n was offset n of partition n % 2; every third one has an error of its own kind."""
        with ottla.Producer(bootstrap_servers=self.topics.bootstrap, transactional_id=self.topics.prefix) as producer:
            for portion in _portions(list(numbers), 100):
                with producer.transaction():
                    for n in portion:
                        facts = {
                            "topic": self.topics.name("events"),
                            "partition": str(n % 2),
                            "offset": str(n),
                            "timestamp": str(self.began_ms + n if time_ms is None else time_ms),
                            "source": source,
                            "error": "id is missing" if n % 3 == 0 else "no JSON",
                        }
                        headers: list[tuple[str, bytes | None]] = [("trace", b"t%d" % n), ("empty", None)]
                        headers += [(PREFIX + name, text.encode()) for name, text in facts.items()]
                        key = None if n % 5 == 0 else b"k%d" % n
                        producer.send(self.topics.name("bad"), b"value %d" % n, key, headers, (n // 2) % 2)

    def sent(self, short: str = "events") -> Counter[int]:
        """The numbers of those that came back."""
        return Counter(int((record.value or b"").split()[1]) for record in self.topics.records(short))

    def redrive(self, chosen: LetterFilter | None = None, **more: Any) -> int:
        return Redrive(self.box, chosen or LetterFilter(), **more).send().summary.letters

    def command(self, *arguments: str) -> int:
        return main(["redrive", str(self.path), *arguments])


def _portions(numbers: list[int], size: int) -> list[list[int]]:
    return [numbers[start : start + size] for start in range(0, len(numbers), size)]


def test_letters_come_back_as_they_were_and_once(spark_broker: BrokerProcess, tmp_path: Path) -> None:
    letters = Letters(spark_broker.bootstrap, "back", tmp_path)
    letters.put(range(300))
    letters.put([900], source="source others")
    with ottla.Producer(bootstrap_servers=spark_broker.bootstrap) as producer:
        producer.send(letters.box.topic, b"value 901", partition=0)  # no letter at all
    assert Redrive(letters.box, LetterFilter()).survey().summary.letters == 300
    assert letters.sent() == {}

    assert letters.redrive() == 300
    assert letters.sent() == dict.fromkeys(range(300), 1)
    for record in letters.topics.records("events"):
        n = int((record.value or b"").split()[1])
        assert (record.partition, record.timestamp) == (n % 2, letters.began_ms + n)
        assert record.key == (None if n % 5 == 0 else b"k%d" % n)
        assert record.headers == (("trace", b"t%d" % n), ("empty", None))

    assert letters.redrive() == 0
    letters.put(range(300, 310))
    assert Redrive(letters.box, LetterFilter()).survey().summary.letters == 10
    assert letters.redrive() == 10
    assert letters.sent() == dict.fromkeys(range(310), 1)


def test_what_a_filter_leaves_out_stays_for_later(spark_broker: BrokerProcess, tmp_path: Path) -> None:
    letters = Letters(spark_broker.bootstrap, "chosen", tmp_path)
    letters.put(range(600))
    asked: list[tuple[LetterFilter, set[int]]] = [
        (LetterFilter(error="missing"), set(range(0, 600, 3))),
        (LetterFilter(partitions=[1], first_offset=100, last_offset=150), {n for n in range(100, 151) if n % 2}),
        (LetterFilter(since_ms=letters.began_ms + 500, until_ms=letters.began_ms + 550), set(range(500, 550))),
        (LetterFilter(topic="elsewhere"), set()),
    ]
    expected: set[int] = set()
    for chosen, meant in asked:
        new = meant - expected
        assert Redrive(letters.box, chosen).survey().summary.letters == len(new)
        assert letters.redrive(chosen) == len(new)
        expected |= new
        assert letters.sent() == dict.fromkeys(expected, 1)
    shown = Redrive(letters.box, LetterFilter(), limit=7).survey().summary.groups
    assert letters.redrive(limit=7) == 7
    came = set(letters.sent()) - expected
    assert sum(group.letters for group in shown) == len(came) == 7
    assert {(group.first_offset, group.last_offset) for group in shown} == {
        (min(of), max(of)) for of in (sorted(n for n in came if n % 2 == half) for half in (0, 1)) if of
    }
    assert letters.redrive() == 600 - len(expected) - 7
    assert letters.sent() == dict.fromkeys(range(600), 1)


def test_killed_in_the_middle_it_neither_loses_nor_doubles(spark_broker: BrokerProcess, tmp_path: Path) -> None:
    letters = Letters(spark_broker.bootstrap, "killed", tmp_path)
    letters.put(range(2000))
    told: list[list[str]] = []
    for kill_after in (3, 9, 20, 10**9):
        arguments = [sys.executable, "-c", DRIVER, spark_broker.bootstrap, letters.box.topic]
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line.strip())
            if len(lines) == kill_after:
                process.kill()
                break
        process.stdout.close()
        process.wait()
        told.append(lines)
    assert [lines[-1] == "done" for lines in told] == [False, False, False, True], told
    assert letters.sent() == dict.fromkeys(range(2000), 1)


def test_the_later_of_two_takes_over(spark_broker: BrokerProcess, tmp_path: Path) -> None:
    letters = Letters(spark_broker.bootstrap, "two", tmp_path)
    letters.put(range(200))
    later: list[int] = []

    def start_another(sent: int) -> None:
        if not later:
            later.append(letters.redrive())

    with pytest.raises(RedriveError, match="another redrive of two-bad has begun"):
        letters.redrive(letters_per_transaction=50, on_progress=start_another)
    assert later == [150]
    assert letters.sent() == dict.fromkeys(range(200), 1)


def test_a_topic_of_letters_that_was_made_anew(spark_broker: BrokerProcess, tmp_path: Path) -> None:
    letters = Letters(spark_broker.bootstrap, "anew", tmp_path)
    letters.put(range(20))
    assert letters.redrive() == 20
    with ottla.Admin(bootstrap_servers=spark_broker.bootstrap) as admin:
        admin.delete_topics([letters.box.topic]).check()
    letters.topics.create(bad=2)
    letters.put(range(100, 110))
    assert letters.redrive() == 10
    assert letters.sent() == dict.fromkeys([*range(20), *range(100, 110)], 1)


def test_what_brokers_would_delete_for_its_age_gets_a_new_time(spark_broker: BrokerProcess, tmp_path: Path) -> None:
    letters = Letters(spark_broker.bootstrap, "aged", tmp_path)
    old_ms = letters.began_ms - 24 * HOUR_MS * 6  # of the seven days that are kept
    letters.put([0, 1], time_ms=old_ms)
    letters.put([2, 3])
    outcome = Redrive(letters.box, LetterFilter()).send()
    assert outcome.retimed == 2
    times = {record.value: record.timestamp for record in letters.topics.records("events")}
    assert times[b"value 2"] == letters.began_ms + 2
    assert times[b"value 0"] > letters.began_ms and times[b"value 1"] > letters.began_ms


def test_the_command(spark_broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    letters = Letters(spark_broker.bootstrap, "asked", tmp_path)
    assert letters.command("shwon") == 1
    assert capsys.readouterr().err == "there is no flow 'shwon'. Did you mean 'shown'?\n"
    assert letters.command("shown", "--since", "noon") == 2
    assert capsys.readouterr().err.startswith("--since 'noon' is no time: write 2026-03-01")
    assert letters.command("shown", "--offsets", "-5") == 2
    assert capsys.readouterr().err.startswith("--offsets '-5' are none: write 100-200")
    assert letters.command("shown") == 0
    assert capsys.readouterr().out == (
        "asked-bad has no letters of source events that are meant and were not sent back before\n"
    )

    letters.put(range(12))
    with ottla.Admin(bootstrap_servers=spark_broker.bootstrap) as admin:
        for group in ("billing", "ottla-pipeline-asked-shown"):
            admin.alter_group_offsets(group, {ottla.TopicPartition("asked-events", 0): 0}).check()
    assert letters.command("shown", "--dry-run") == 0
    assert capsys.readouterr().out.splitlines() == [
        "LETTERS  TOPIC         PARTITION  OFFSETS  ERROR",
        "      4  asked-events          0  2-10     no JSON",
        "      4  asked-events          1  1-11     no JSON",
        "      2  asked-events          0  0-6      id is missing",
        "      2  asked-events          1  3-9      id is missing",
        "12 letters of asked-bad would be sent to where they were in asked-events",
        "other readers of asked-events would get them once more: billing; with a 'redrive_topic' only the source would",
    ]
    assert letters.sent() == {}
    assert letters.command("events-dead-letters", "--error", "missing", "--partition", "1", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "dead_letter_topic": "asked-bad",
        "dry_run": False,
        "letters": 2,
        "to": ["asked-events"],
        "to_origin": True,
        "retimed": 0,
        "other_readers": ["billing"],
        "groups": [
            {
                "topic": "asked-events",
                "partition": 1,
                "error": "id is missing",
                "letters": 2,
                "first_offset": 3,
                "last_offset": 9,
            }
        ],
    }
    assert letters.sent() == {3: 1, 9: 1}

    # Through the flow alone: to a topic that only the source reads.
    letters.describe(more="redrive_topic: asked-again")
    assert letters.command("shown") == 1
    assert "there is no topic 'asked-again', where letters are to go" in capsys.readouterr().err
    letters.describe(more="redrive_topic: asked-again\n    dead_letter_partitions: 2")
    assert letters.command("shown", "--offsets", "4-", "--dry-run") == 0
    assert capsys.readouterr().out.endswith("7 letters of asked-bad would be sent to asked-again\n")
    with ottla.Admin(bootstrap_servers=spark_broker.bootstrap) as admin:
        assert "asked-again" not in admin.list_topics()
    assert letters.command("shown", "--offsets", "4-") == 0
    assert capsys.readouterr().out.endswith("7 letters of asked-bad sent to asked-again\n")
    assert letters.sent("again") == dict.fromkeys([4, 5, 6, 7, 8, 10, 11], 1)
    kept = {dict(record.headers)[PREFIX + "offset"] for record in letters.topics.records("again")}
    assert kept == {b"4", b"5", b"6", b"7", b"8", b"10", b"11"}
    assert letters.command("shown", "--to-origin") == 0
    assert letters.sent() == dict.fromkeys([0, 1, 2, 3, 9], 1)


def test_a_topic_that_letters_came_from_is_gone(
    spark_broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    letters = Letters(spark_broker.bootstrap, "gone", tmp_path)
    letters.put(range(4))
    with ottla.Admin(bootstrap_servers=spark_broker.bootstrap) as admin:
        admin.delete_topics([letters.topics.name("events")]).check()
    for arguments in (["--dry-run"], []):
        assert letters.command("shown", *arguments) == 1
        assert capsys.readouterr().err.startswith("there is no topic 'gone-events', where letters are to go")
    letters.topics.create(events=1)
    assert letters.command("shown") == 1
    assert capsys.readouterr().err.startswith("topic 'gone-events' has no partition 1, where letters came from")
    assert letters.sent() == {}
