"""`ottla elect-leaders` in Kafka's words, on a broker that leads everything already."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.commands import Commands


def test_leaders_that_need_no_election(ottla: Commands, filled: str, tmp_path: Path) -> None:
    one = f"Valid replica already elected for partitions {filled}-1\n"
    assert ottla("elect-leaders", "--topic", filled, "--partition", "1") == (0, one, "")
    file = tmp_path / "partitions.json"
    file.write_text(json.dumps({"partitions": [{"topic": filled, "partition": number} for number in (0, 1)]}))
    both = f"Valid replica already elected for partitions {filled}-0, {filled}-1\n"
    assert ottla("elect-leaders", "--path-to-json-file", str(file), "--election-type", "UNCLEAN") == (0, both, "")
    assert ottla("elect-leaders", "--all-topic-partitions") == (0, "", "")
    file.write_text('{"partitions": []}')
    assert ottla("elect-leaders", "--path-to-json-file", str(file)) == (0, "", "")


def test_a_partition_that_does_not_exist(ottla: Commands, filled: str) -> None:
    code, out, error = ottla("elect-leaders", "--topic", filled, "--partition", "2")
    assert (code, error) == (1, "1 replica(s) could not be elected\n")
    assert out == (
        f"Error completing leader election (PREFERRED) for partition: {filled}-2: The partition does not exist.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "One and only one of the following options is required"),
        (["--topic", "t", "--partition", "0", "--all-topic-partitions"], "One and only one"),
        (["--topic", "t"], "Missing required option(s): partition"),
        (["--all-topic-partitions", "--partition", "0"], "Missing required option(s): partition"),
    ],
)
def test_options_that_do_not_fit(ottla: Commands, arguments: list[str], says: str) -> None:
    code, out, error = ottla("elect-leaders", *arguments)
    assert (code, out) == (2, "")
    assert says in error
