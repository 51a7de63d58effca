"""A flow goes on from its checkpoint, or says why it cannot; and leaves nothing behind but its own group."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

import ottla
from ottla.spark.pipeline import Pipeline, SpecError
from tests.broker_process import BrokerProcess
from tests.spark.pipelines import Recorder, Topics

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

DESCRIPTION = """\
name: {prefix}
checkpoint: state
kafka: {{bootstrap.servers: "{bootstrap}"}}
sources:
  numbers:
    kind: topic
    topic: {prefix}-numbers
    format: json
    schema: n BIGINT
    dead_letter: {prefix}-dead
    dead_letter_partitions: 1
sinks:
  copy: {{kind: topic, topic: {prefix}-copy, format: json, create_partitions: 1}}
flows:
  copy: {{from: numbers, to: copy}}
"""


class Copying:
    def __init__(self, topics: Topics, directory: Path) -> None:
        self.topics = topics
        self.state = directory / "state"
        self.path = directory / "copying.yaml"
        self.path.write_text(DESCRIPTION.format(prefix=topics.prefix, bootstrap=topics.bootstrap))
        topics.create(numbers=2)

    def run(self, spark: Any) -> Recorder:
        recorder = Recorder()
        Pipeline.from_file(self.path).run(spark, once=True, observer=recorder)
        return recorder

    def problem(self, spark: Any, *overrides: tuple[str, str]) -> str:
        """What both check and run say."""
        told = []
        pipeline = Pipeline.from_file(self.path, overrides)
        for ask in (pipeline.check, lambda session: pipeline.run(session, once=True)):
            with pytest.raises(SpecError) as error:
                ask(spark)
            told.append(str(error.value).replace(f"{self.path.parent}/", ""))
        assert told[0] == told[1]
        return told[0]

    def groups(self) -> list[str]:
        """As a foreign client lists them."""
        admin = AdminClient({"bootstrap.servers": self.topics.bootstrap})
        listed = admin.list_consumer_groups().result(30)
        assert not listed.errors
        return sorted(group.group_id for group in listed.valid if self.topics.prefix in group.group_id)


def test_what_is_left_behind_and_what_is_gone_on_from(spark: Any, spark_broker: BrokerProcess, tmp_path: Path) -> None:
    copying = Copying(Topics(spark_broker.bootstrap, "continued"), tmp_path)
    topics = copying.topics
    topics.send("numbers", [*({"n": n} for n in range(50)), b"bad"])
    reports = copying.run(spark).reports
    assert reports["copy"].rows == (51, 50, 1)
    assert reports["numbers-dead-letters"].rows == (51, 1, 1)
    assert {report.lag for report in reports.values()} == {0}
    own = ["ottla-pipeline-continued-copy", "ottla-pipeline-continued-numbers-dead-letters"]
    assert copying.groups() == own

    # Another topic in the description.
    topics.create(others=1)
    told = copying.problem(spark, ("sources.numbers.topic", topics.name("others")))
    held = "the checkpoint of flow {}, state/{}, holds offsets of topic 'continued-numbers'"
    for line, flow in zip(told.splitlines(), ["copy", "numbers-dead-letters"], strict=True):
        assert line.startswith(f"--set sources.numbers.topic: source numbers: {held.format(flow, flow)}")
        assert "which source numbers does not read any more. Let it read that topic again, or start over" in line

    # An old copy of the checkpoint.
    shutil.copytree(copying.state, tmp_path / "old")
    topics.send("numbers", [{"n": n} for n in range(50, 60)])
    copying.run(spark)
    shutil.rmtree(copying.state)
    shutil.copytree(tmp_path / "old", copying.state)
    told = copying.problem(spark)
    assert "flow copy: its checkpoint state/copy ends with batch 0, but batch 1 was written from it" in told
    assert sorted(row["n"] for row in topics.values("copy")) == list(range(60))
    assert copying.groups() == own

    # A topic that is another one.
    with ottla.Admin(bootstrap_servers=topics.bootstrap) as admin:
        admin.delete_topics([topics.name("numbers")]).check()
    topics.create(numbers=2)
    topics.send("numbers", [{"n": n} for n in range(100)])
    told = copying.problem(spark)
    assert f"copying.yaml:7: source numbers: {held.format('copy', 'copy')}, which was deleted and created again" in told
    assert "Start over with a new checkpoint: delete that directory, or give the flow another 'checkpoint'" in told
