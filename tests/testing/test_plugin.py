"""The fixtures as pytest gives them to anybody who has Ottla installed, and the examples of the documentation."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource

from ottla.testing import EmbeddedBroker, ManualClock
from tests.waiting import PATIENCE_S

GUIDE = Path(__file__).parents[2] / "docs" / "testing.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def run_pytest(directory: Path, *files: Path) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "--strict-markers", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *map(str, files)], cwd=directory, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def partitions(broker: EmbeddedBroker, topic: str) -> int:
    return len(
        Producer({"bootstrap.servers": broker.bootstrap_servers}).list_topics(topic, 20).topics[topic].partitions
    )


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_the_examples_of_the_guide_run(tmp_path: Path, number: int) -> None:
    program = tmp_path / "test_example.py"
    program.write_text(PROGRAMS[number])
    assert re.search(r"[1-9] passed", run_pytest(tmp_path, program))


def test_the_guide_has_examples() -> None:
    assert len(PROGRAMS) == 4


def test_settings_of_all_brokers_come_from_a_conftest(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import pytest\n\n@pytest.fixture(scope='session')\ndef ottla_config():\n    return {'num.partitions': 7}\n"
    )
    program = tmp_path / "test_settings.py"
    program.write_text(
        "from confluent_kafka import Producer\n"
        "def count(broker):\n"
        "    producer = Producer({'bootstrap.servers': broker.bootstrap_servers})\n"
        "    producer.produce('made', b'x')\n"
        "    assert producer.flush(20) == 0\n"
        "    return len(producer.list_topics('made', 20).topics['made'].partitions)\n"
        "def test_own(ottla): assert count(ottla) == 7\n"
        "def test_shared(ottla_broker): assert count(ottla_broker) == 7\n"
    )
    assert "2 passed" in run_pytest(tmp_path, program)


def test_pytest_does_not_load_the_broker_until_a_fixture_is_used(tmp_path: Path) -> None:
    program = tmp_path / "test_light.py"
    program.write_text("import sys\ndef test_it(): assert 'ottla.broker.node' not in sys.modules\n")
    assert "1 passed" in run_pytest(tmp_path, program)


_seen: list[str] = []


@pytest.mark.parametrize("run", [1, 2])
def test_each_test_has_fresh_data(ottla: EmbeddedBroker, run: int) -> None:
    ottla.create_topic("mine")
    assert str(ottla.data_dir) not in _seen
    _seen.append(str(ottla.data_dir))


@pytest.mark.parametrize("run", [1, 2])
def test_the_sessions_broker_is_shared(ottla_broker: EmbeddedBroker, run: int) -> None:
    topic = ottla_broker.new_topic("shared")
    assert partitions(ottla_broker, topic) == 1
    if run == 2:
        assert topic != "shared-1"


def settings(broker: EmbeddedBroker) -> dict[str, str]:
    """What the broker itself says its settings are."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    (broker_id,) = admin.list_topics(timeout=20).brokers
    resource = ConfigResource(ConfigResource.Type.BROKER, str(broker_id))
    entries = admin.describe_configs([resource])[resource].result(20)
    return {name: entry.value for name, entry in entries.items()}


@pytest.mark.ottla({"num.partitions": 5, "min.insync.replicas": 4})
class TestMarks:
    @pytest.mark.ottla({"num.partitions": 2})
    def test_marks_add_up_and_the_nearest_wins(self, ottla: EmbeddedBroker, ottla_config: Mapping[str, object]) -> None:
        found = settings(ottla)
        assert (found["num.partitions"], found["min.insync.replicas"]) == ("2", "4")
        assert ottla_config == {}

    def test_the_next_test_has_its_own(self, ottla: EmbeddedBroker) -> None:
        assert settings(ottla)["num.partitions"] == "5"


@pytest.mark.ottla({"log.message.timestamp.type": "LogAppendTime"})
def test_the_clock_of_a_test(ottla: EmbeddedBroker, ottla_clock: ManualClock) -> None:
    ottla_clock.advance(1234)
    times: list[int] = []
    producer = Producer({"bootstrap.servers": ottla.bootstrap_servers})
    producer.produce(
        ottla.create_topic("timed"), b"x", on_delivery=lambda _, message: times.append(message.timestamp()[1])
    )
    assert producer.flush(20) == 0
    assert times == [1_700_000_001_234]


@pytest.mark.ottla(num_partitions=5)
def test_a_name_that_does_not_hide_the_module(ottla_fresh: EmbeddedBroker, ottla_clock: ManualClock) -> None:
    import ottla

    assert partitions(ottla_fresh, "made") == 5
    with ottla.Producer(bootstrap_servers=ottla_fresh.bootstrap_servers) as producer:
        assert producer.send("made", b"x").result(20).offset == 0


def test_both_names_are_one_broker(ottla: EmbeddedBroker, ottla_fresh: EmbeddedBroker) -> None:
    assert ottla is ottla_fresh


@pytest.mark.ottla(num_partitions=5)
def test_settings_of_a_test_as_keywords(ottla: EmbeddedBroker) -> None:
    assert partitions(ottla, "made") == 5


@pytest.mark.parametrize("mark", ["'num.partitions=3'", "{}, {'num.partitions': 3}", "5"])
def test_settings_of_a_test_that_are_none(tmp_path: Path, mark: str) -> None:
    program = tmp_path / "test_settings.py"
    program.write_text(f"import pytest\n\n@pytest.mark.ottla({mark})\ndef test_own(ottla): pass\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(program)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert "mapping of" in done.stdout


@pytest.mark.parametrize("ms", [1.5, -1, "5"])
def test_a_clock_goes_forward_by_whole_milliseconds(ottla_clock: ManualClock, ms: int) -> None:
    with pytest.raises(ValueError, match="whole milliseconds"):
        ottla_clock.advance(ms)
