"""What the commands about a pipeline ask of it, with options and without: neither Spark nor a broker is needed."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from ottla.base.types import TopicPartition
from ottla.cli import flow_positions, mirrored_groups, pipeline
from ottla.cli.main import main
from ottla.spark.offset_places import EARLIEST, AtEdge
from ottla.spark.pipeline import display
from ottla.spark.pipeline.moves import positions, reset, showing

FILE = Path("p.yaml")


class Described:
    """A pipeline that notes what it is asked to do."""

    def __init__(self, *flows: str) -> None:
        self.flows = flows
        self.loaded: list[tuple[object, ...]] = []
        self.asked: dict[str, Any] = {}
        self.shown: list[tuple[object, ...]] = []
        self.gets_a_signal = False

    def load(self, *arguments: object) -> Described:
        self.loaded.append(arguments)
        return self

    def model(self) -> Any:
        return SimpleNamespace(name="p", flows=dict.fromkeys(self.flows))

    def run(self, **options: Any) -> None:
        self.asked = options
        if self.gets_a_signal:
            options["on_start"](SimpleNamespace(stop=lambda: None))
            signal.raise_signal(signal.SIGTERM)

    def check(self, **options: Any) -> None:
        self.asked = options

    @contextmanager
    def display(self, name: str, flows: object, *, output: str) -> Iterator[str]:
        self.shown.append((name, output))
        yield "the display"


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> Described:
    made = Described("f", "g")
    for module in (pipeline, flow_positions):
        monkeypatch.setattr(module, "load_pipeline", made.load)
    monkeypatch.setattr(display, "choose_display", made.display)
    return made


def call(*arguments: str) -> int:
    try:
        return main(["pipeline", *arguments])
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1


def test_without_options_a_pipeline_runs_until_it_is_stopped(described: Described) -> None:
    assert call("run", "p.yaml") == 0
    on_start = described.asked.pop("on_start")
    assert callable(on_start)
    assert described.asked == {
        "once": False,
        "master": None,
        "log_file": None,
        "observer": "the display",
        "save_classes": False,
    }
    assert described.loaded == [(FILE, None, None)]
    assert described.shown == [("p", "auto")]


def test_every_option_of_a_run_is_heeded(described: Described) -> None:
    options = ["--once", "--master", "local[2]", "--log-file", "l.txt", "--save-classes", "--output", "lines"]
    assert call("run", "p.yaml", *options, "--bootstrap-server", "h:1", "--set", "a=b", "--set", "c=d") == 0
    assert {name: described.asked[name] for name in ("once", "master", "log_file", "save_classes")} == {
        "once": True,
        "master": "local[2]",
        "log_file": Path("l.txt"),
        "save_classes": True,
    }
    assert described.loaded == [(FILE, "h:1", ["a=b", "c=d"])]
    assert described.shown == [("p", "lines")]


def test_json_is_a_form_of_output(described: Described) -> None:
    call("run", "p.yaml", "--json")
    call("run", "p.yaml", "--output", "json")
    assert described.shown == [("p", "json")] * 2


def test_a_run_that_was_stopped_by_a_signal_says_so(described: Described) -> None:
    described.gets_a_signal = True
    assert call("run", "p.yaml") == 130


@pytest.mark.parametrize(("flows", "told"), [(("f",), "1 flow"), (("f", "g"), "2 flows"), ((), "0 flows")])
def test_a_pipeline_without_faults(
    described: Described, flows: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    described.flows = flows
    assert call("check", "p.yaml", "--master", "local[2]") == 0
    assert described.asked == {"master": "local[2]"}
    assert capsys.readouterr().out == f"p.yaml: fine, {told}\n"


@pytest.mark.parametrize(("all_moved", "code"), [(True, 0), (False, 1)])
def test_groups_are_only_shown_unless_told_otherwise(
    described: Described, monkeypatch: pytest.MonkeyPatch, all_moved: bool, code: int
) -> None:
    asked: list[tuple[object, ...]] = []

    def move(of: object, groups: object, mirror: object, *, execute: bool, rewind: bool) -> bool:
        asked.append((of, groups, mirror, execute, rewind))
        return all_moved

    monkeypatch.setattr(mirrored_groups, "move_groups", move)
    assert call("groups", "p.yaml") == code
    assert call("groups", "p.yaml", "--group", "a", "--group", "b", "--mirror", "m", "--execute", "--rewind") == code
    assert asked == [(described, None, None, False, False), (described, ["a", "b"], "m", True, True)]


# Positions of flows

T0, T1, GONE = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("old", 0)


class Shown:
    """A flow's position: one partition is behind, one beyond its end, and one is not there any more."""

    def __init__(self) -> None:
        self.batch = 7
        self.position = {T1: 9, T0: 100, GONE: 3}
        self.ends = {T0: 150, T1: 5}
        self.groups: list[str] = []

    def write_group(self, group: str) -> None:
        self.groups.append(group)


@pytest.fixture
def shown(described: Described, monkeypatch: pytest.MonkeyPatch) -> Shown:
    made = Shown()
    monkeypatch.setattr(positions, "find_flow", lambda model, name: name)
    monkeypatch.setattr(showing, "show_position", lambda model, flow: made)
    return made


TABLE = [
    "TOPIC  PARTITION  POSITION   END  LAG",
    "old            0         3  gone    -",
    "t              0       100   150   50",
    "t              1         9     5    0",
]


@pytest.mark.parametrize(
    ("options", "groups", "told"),
    [
        ([], [], []),
        (["--to-group", "g"], ["g"], ["group g goes on there"]),
        (["--to-group", "g", "--dry-run"], [], ["group g would go on there"]),
    ],
)
def test_where_a_flow_is(
    shown: Shown, options: list[str], groups: list[str], told: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("position", "p.yaml", "f", *options) == 0
    assert shown.groups == groups
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [*TABLE, *told]


@pytest.mark.parametrize("form", [["--json"], ["--output", "json"]])
@pytest.mark.parametrize(
    ("options", "more"),
    [
        ([], {}),
        (["--to-group", "g"], {"group": "g", "dry_run": False}),
        (["--to-group", "g", "--dry-run"], {"group": "g", "dry_run": True}),
    ],
)
def test_where_a_flow_is_as_json(
    shown: Shown, form: list[str], options: list[str], more: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("position", "p.yaml", "f", *form, *options) == 0
    assert json.loads(capsys.readouterr().out) == {
        "flow": "f",
        "batch": 7,
        "position": {"old": {"0": 3}, "t": {"0": 100, "1": 9}},
        "ends": {"t": {"0": 150, "1": 5}},
        **more,
    }


@pytest.mark.parametrize(("options", "dry_run"), [([], False), (["--dry-run"], True)])
@pytest.mark.parametrize("form", [[], ["--json"], ["--output", "json"]])
def test_a_flow_is_moved_unless_it_is_only_tried(
    described: Described,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    form: list[str],
    dry_run: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[tuple[object, ...]] = []

    def move(model: object, flow: str, place: object, *, dry_run: bool) -> reset.Move:
        asked.append((flow, place, dry_run))
        aside = None if dry_run else Path("aside")
        return reset.Move("f", {T0: 5}, {T0: 0}, {T0: 9}, (), aside)

    monkeypatch.setattr(reset, "reset_flow", move)
    assert call("reset", "p.yaml", "f", "--to-earliest", *options, *form) == 0
    assert asked == [("f", AtEdge(EARLIEST), dry_run)]
    said = capsys.readouterr().out
    if form:
        assert json.loads(said)["dry_run"] is dry_run
    else:
        assert ("nothing was changed" in said) is dry_run
