"""Kafka's script names: which are written, and what of them a transcript (`terminal/`) cannot show."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.cli.kafka_names.aliases import write_scripts
from ottla.cli.kafka_names.scripts import SCRIPTS
from ottla.cli.main import main
from tests.broker_process import BrokerProcess

pytestmark = pytest.mark.interop

Answer = tuple[int, str, str]
Run = Callable[..., Answer]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("bin")
    assert main(["aliases", str(directory)]) == 0
    return directory


@pytest.fixture
def run(scripts: Path, broker: BrokerProcess, tmp_path: Path) -> Run:
    def run_script(name: str, *arguments: str, text: str = "") -> Answer:
        command = [str(scripts / name), "--bootstrap-server", broker.bootstrap, *arguments]
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
        )
        return done.returncode, done.stdout, done.stderr

    return run_script


def test_every_script_is_written_and_none_of_others_written_over(scripts: Path, tmp_path: Path) -> None:
    assert sorted(path.name for path in scripts.iterdir()) == sorted(SCRIPTS)
    assert all(os.access(path, os.X_OK) for path in scripts.iterdir())
    assert write_scripts(scripts) == list(SCRIPTS)
    (tmp_path / "kafka-topics.sh").write_text("#!/bin/sh\necho mine\n")
    assert main(["aliases", str(tmp_path)]) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["kafka-topics.sh"]


def test_records_are_deleted_and_speed_is_measured(
    run: Run, scripts: Path, broker: BrokerProcess, new_topic: str
) -> None:
    assert run("kafka-topics.sh", "--create", "--topic", new_topic)[0] == 0
    perf = [
        str(scripts / "kafka-producer-perf-test.sh"),
        "--topic",
        new_topic,
        "--num-records",
        "20",
        "--record-size",
        "9",
    ]
    properties = ["--throughput", "-1", "--producer-props", f"bootstrap.servers={broker.bootstrap}", "acks=1"]
    done = subprocess.run([*perf, *properties], capture_output=True, text=True, timeout=60, check=True)
    number = r"\d+(\.\d+)?"
    assert re.fullmatch(
        rf"20 records sent, \d+\.\d{{6}} records/sec \({number} MB/sec\), {number} ms avg latency, {number} ms max "
        r"latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99.9th.\n",
        done.stdout,
    )
    plan = Path(scripts.parent / "plan.json")
    plan.write_text(json.dumps({"partitions": [{"topic": new_topic, "partition": 0, "offset": 3}], "version": 1}))
    assert run("kafka-delete-records.sh", "--offset-json-file", str(plan)) == (
        0,
        "Executing records delete operation\nRecords delete operation completed:\n"
        f"partition: {new_topic}-0\tlow_watermark: 3\n",
        "",
    )
