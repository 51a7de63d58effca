"""`ottla pipeline` as far as it needs no Spark: signals, what is loaded, and where groups of a mirror go."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from ottla.base.types import TopicPartition
from ottla.cli import mirrored_groups, pipeline
from ottla.cli.failures import UsageError
from ottla.cli.main import main, run
from ottla.cli.pipeline_file import load_pipeline
from ottla.spark.mirror.group_offsets import Translation, Verdict
from ottla.spark.pipeline import Pipeline

CLUSTERS = {name: {"bootstrap.servers": f"{name}:9092"} for name in ("west", "east")}


class Stoppable:
    def __init__(self) -> None:
        self.stops = 0

    def stop(self) -> None:
        self.stops += 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_flows_finish_and_a_second_one_does_not(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    runner: Any = Stoppable()
    with pipeline._stopped_by_signals() as (stop_with, was_stopped):
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)  # before anything runs
        assert not was_stopped()
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # as Spark does when it starts
        stop_with(runner)
        signal.raise_signal(number)
        assert (runner.stops, was_stopped()) == (1, True)
        assert capsys.readouterr().err == "stopping after the current batch; once more to stop at once\n"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        assert runner.stops == 1
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.fixture
def file(tmp_path: Path) -> Path:
    written = tmp_path / "p.yaml"
    written.write_text(
        "name: p\ncheckpoint: state\nkafka: {bootstrap.servers: 'h:1'}\n"
        "sources: {in: {kind: topic, topic: a}}\nsinks: {out: {kind: topic, topic: b}}\n"
        "flows: {f: {from: in, to: out}}\n"
    )
    return written


def test_what_the_command_line_says_beats_the_file(file: Path) -> None:
    loaded = load_pipeline(file, "other:2", ["flows.f.trigger=3 seconds"]).model()
    assert loaded.flows["f"].trigger_ms == 3000
    plain = load_pipeline(file, None, None).model()
    assert plain.flows["f"].trigger_ms != 3000
    servers = [model.sources["in"].part.client_options["kafka.bootstrap.servers"] for model in (loaded, plain)]  # type: ignore[attr-defined]
    assert servers == ["other:2", "h:1"]
    with pytest.raises(UsageError, match="--set 'nonsense' is not of the form name=value"):
        load_pipeline(file, None, ["nonsense"])


def test_without_anything_to_do_it_helps(capsys: pytest.CaptureFixture[str]) -> None:
    main(["pipeline"])
    said = capsys.readouterr()
    for words in ("run a pipeline", "look for what would keep it from running", "move groups to the target"):
        assert words in said.out + said.err


def mirrored(*names: str) -> Pipeline:
    made = Pipeline("dr", clusters=CLUSTERS)
    for name in names:
        made.mirror(name, "west", "east", topics=[f"topic-{name}"])
    return made


def test_the_mirror_that_is_meant(file: Path) -> None:
    assert mirrored_groups._choose(mirrored("a"), None).name == "a"
    assert mirrored_groups._choose(mirrored("a", "b"), "b").name == "b"
    for made, name, words in (
        (Pipeline.from_file(file, []), None, "the pipeline has no mirrors"),
        (mirrored("b", "a"), None, "say which mirror with --mirror: a, b"),
        (mirrored("a"), "c", "there is no mirror 'c'; there is a"),
    ):
        with pytest.raises(UsageError, match=words):
            mirrored_groups._choose(made, name)


def test_where_groups_go_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    source, target = TopicPartition("t", 0), TopicPartition("west.t", 0)
    mirrored_groups._show(
        [
            Translation("g", source, 1234, target, 99, None, Verdict.MOVES),
            Translation("longer", source, 5, target, 5, 7, Verdict.IS_AHEAD),
        ]
    )
    assert capsys.readouterr().out.splitlines() == [
        "GROUP   TOPIC  PARTITION  OFFSET  TARGET-TOPIC  TARGET-OFFSET  CURRENT-OFFSET",
        "g       t      0          1234    west.t        99             -               moves",
        "longer  t      0          5       west.t        5              7               is ahead",
    ]
    mirrored_groups._show([])
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("ending", "code"), [(KeyboardInterrupt, 130), (None, 3)])
def test_the_exit_code_of_the_command(
    ending: type[BaseException] | None, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def command(arguments: list[str]) -> int:
        assert arguments == ["-x"]
        if ending is not None:
            raise ending
        return 3

    monkeypatch.setattr("sys.argv", ["ottla", "topics", "-x"])
    monkeypatch.setattr("ottla.cli.main.import_module", lambda name: SimpleNamespace(main=command))
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == code
