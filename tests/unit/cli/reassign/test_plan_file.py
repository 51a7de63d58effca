"""Plan files: Kafka's are read as they are, and of others one is told the line and what is wrong there."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.types import TopicPartition
from ottla.cli.failures import UsageError
from ottla.cli.main import main
from ottla.cli.reassign.plan_file import PlanError, plan_json, read_partitions, read_plan, read_topics


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(text)
    return path


def test_a_file_of_kafkas_tool(tmp_path: Path) -> None:
    text = '{"version":1,"partitions":[{"topic":"mv","partition":0,"replicas":[3,1],"log_dirs":["any","/d"]},' + (
        '\n{"topic":"mv","partition":1,"replicas":[1,2]}]}'
    )
    _, (first, second) = read_plan(written(tmp_path, text))
    assert first == (TopicPartition("mv", 0), (3, 1), ("any", "/d"), 1)
    assert second == (TopicPartition("mv", 1), (1, 2), ("any", "any"), 2)


def test_what_is_written_is_what_kafkas_tool_prints_and_reads(tmp_path: Path) -> None:
    text = plan_json({TopicPartition("mv", 1): (2, 3), TopicPartition("mv", 0): (1, 2)})
    assert text == (
        '{"version":1,"partitions":[{"topic":"mv","partition":0,"replicas":[1,2],"log_dirs":["any","any"]},'
        '{"topic":"mv","partition":1,"replicas":[2,3],"log_dirs":["any","any"]}]}'
    )
    assert [planned.replicas for planned in read_plan(written(tmp_path, text))[1]] == [(1, 2), (2, 3)]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ('{"version":1,"partitions":[{"topic":"mv",\n', 2, "Expecting property name"),
        ("[]", 1, "an object"),
        ('{"version":2,"partitions":[]}', 1, "Not supported version field value 2"),
        ('{"parts":[]}', 1, 'the list "partitions" is missing'),
        ('{"partitions":[\n7]}', 2, "7 is not an object"),
        ('{"partitions":[\n\n{"topic":"t","replicas":[1]}]}', 3, '"partition" is missing'),
        ('{"partitions":[{"topic":"t","partition":"0","replicas":[1]}]}', 1, '"partition" is "0", not a number'),
        ('{"partitions":[\n{"topic":"t","partition":0,"replicas":[]}]}', 2, "replica list cannot be empty"),
        ('{"partitions":[\n{"topic":"t","partition":0,"replicas":["1"]}]}', 2, '"1" in the replicas of t-0 is not'),
        (
            '{"partitions":[\n{"topic":"t","partition":0,"replicas":[1,1]}]}',
            2,
            "Partition replica lists may not contain duplicate entries: t-0 contains multiple entries for 1",
        ),
        (
            '{"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any"]}]}',
            1,
            r"Size of replicas list \[1, 2\] is different from size of log dirs list \[any\] for partition t-0",
        ),
        (
            '{"partitions":[{"topic":"t","partition":0,"replicas":[1]},\n{"topic":"t","partition":0,"replicas":[2]}]}',
            2,
            "contains duplicate topic partitions: t-0",
        ),
        pytest.param("[" * 100_000, 1, "it is nested too deeply", id="nested"),
        (
            '{"partitions":[{"topic":"t","partition":0,"replicas":[1]}],\n"partitions":[\n'
            '{"topic":"t","partition":0,"replicas":[1]},\n{"topic":"t","partition":1,"replicas":[]}]}',
            4,
            "replica list cannot be empty",
        ),
    ],
)
def test_mistakes_have_a_line_and_a_reason(tmp_path: Path, text: str, line: int, reason: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(PlanError, match=f"plan.json, line {line}: .*{reason}"):
        read_plan(path)


def test_a_byte_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(b'{"partitions":[\n{"topic":"\xe9"}]}')
    with pytest.raises(UsageError, match=r"plan.json is no text in UTF-8: byte 26 is 0xe9"):
        read_plan(path)


@pytest.mark.parametrize(
    "before",
    [
        '"note":"partitions","list":[7],',
        '"partitions":[7],',
        '"deep":{"partitions":[7]},',
        '"partition\\u0073":[7],',
    ],
)
def test_no_entry_is_overlooked_whatever_stands_beside_the_list(tmp_path: Path, before: str) -> None:
    entries = ",\n".join(f'{{"topic":"t","partition":{number},"replicas":[1]}}' for number in range(3))
    _, plan = read_plan(written(tmp_path, f' {{{before} "partitions" : [\n{entries} ] , "after":"]"}}\n'))
    assert [(planned.tp.partition, planned.line) for planned in plan] == [(0, 2), (1, 3), (2, 4)]


def test_other_files(tmp_path: Path) -> None:
    assert read_topics(written(tmp_path, '{"topics":[{"topic":"a"},{"topic":"b"},{"topic":"a"}]}')) == ["a", "b"]
    found = read_partitions(written(tmp_path, '{"partitions":[{"topic":"a","partition":3}]}'))
    assert found == [TopicPartition("a", 3)]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "name exactly one of generate, execute, verify, cancel, list"),
        (["--list", "--verify"], "name exactly one of"),
        (["execute"], "which plan to execute is not said"),
        (["--list", "--throttle", "5"], "--throttle, --timeout, --wait and --additional are for execute only"),
        (["--generate", "--topic", "t"], "--generate needs"),
        (["generate", "--broker-list", "1,1"], r"Broker list contains duplicate entries: \[1\]"),
        (["generate", "--broker-list", "one"], "is not of the form 1,2,3"),
    ],
)
def test_options_that_make_no_sense(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reassign", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("Usage: ottla reassign")
    with pytest.raises(AssertionError, match=told):
        raise AssertionError(said.err)


def test_a_file_that_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reassign", "generate", "--topics-to-move-json-file", "missing.json"]) == 1
    assert "missing.json: no such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "One and only one of"),
        (["--topic", "t"], "Missing required option(s): partition"),
        (["--topic", "t", "--partition", "0", "--all-topic-partitions"], "One and only one of"),
    ],
)
def test_elections_that_make_no_sense(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["elect-leaders", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == "" and told in said.err
