"""A few rows of the table of faults, shortened, and a few faults of the random mix, with seeds that stay the same."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.cluster.chaos import broker_rows, client_rows, disk_rows  # noqa: F401 (they add rows)
from tests.cluster.chaos.java_writer import TOO_LATE, JavaWriter
from tests.cluster.chaos.random_faults import run
from tests.cluster.chaos.table import ROWS, play
from tests.ports import free_ports
from tests.waiting import repeat_until

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("row_id", ["F07", "D04"])
def test_a_row_of_the_table(row_id: str, tmp_path: Path) -> None:
    result = play(ROWS[row_id], tmp_path, seed=7, short=True)
    assert result.verdict.startswith("ok"), result
    assert result.figures.records > 100


def test_what_is_acknowledged_survives_kills(tmp_path: Path) -> None:
    figures = run(tmp_path / "cluster", port=free_ports(3), seed=7, faults=2)
    assert figures.acknowledged > 100
    assert sum(figures.faults.values()) == 2


def test_records_of_javas_producer_are_in_the_order_in_which_it_sent_them(tmp_path: Path) -> None:
    """A request that timed out is sent again, and acknowledged after those behind it."""
    writer = _writer_that_says(tmp_path, f"echo '{_success(0)}'; echo '{_success(2)}'; echo '{_success(1)}'")
    repeat_until(lambda: len(writer.operations) == 3)
    writer.finish()
    assert [step.offset for operation in writer.operations for step in operation.sends()] == [0, 1, 2]


def test_javas_producer_is_not_ended_before_it_has_written_something(tmp_path: Path) -> None:
    writer = _writer_that_says(tmp_path, f"sleep 1; echo '{_success(0)}'; exec sleep 100")
    writer.finish()
    assert len(writer.operations) == 1 and writer.failures == []


def test_what_javas_producer_refuses_after_its_end_was_not_sent(tmp_path: Path) -> None:
    refused = json.dumps({"name": "producer_send_error", "value": "7.1", "message": TOO_LATE})
    (tmp_path / "refused").write_text(f"{refused}\n")
    say_it = f"cat {tmp_path / 'refused'}"
    at_its_end = f"trap '{say_it}; exit' TERM; echo '{_success(0)}'; while :; do sleep 0.05; done"
    writer = _writer_that_says(tmp_path, at_its_end)
    writer.finish()
    assert len(writer.operations) == 1 and writer.failures == []
    writer = _writer_that_says(tmp_path, f"echo '{_success(0)}'; {say_it}")
    repeat_until(lambda: bool(writer.failures))
    writer.finish()
    assert writer.failures == [refused]


def _success(number: int) -> str:
    return json.dumps({"name": "producer_send_success", "partition": 0, "value": f"7.{number}", "offset": number})


def _writer_that_says(directory: Path, script: str) -> JavaWriter:
    class Tools:
        def start(self, *_: str) -> subprocess.Popen[str]:
            return subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True)

    return JavaWriter(Tools(), "nowhere:1", "plain", directory)  # type: ignore[arg-type]
