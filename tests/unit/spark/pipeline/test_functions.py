"""Functions that a description names: where they are found, what they ask for, and how they get to the tasks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from pyspark import cloudpickle

from ottla.spark.pipeline.functions import FUNCTION_PATH, find_function, inputs_of, load_function
from ottla.spark.pipeline.model import View
from ottla.spark.pipeline.problems import Place, SpecError
from ottla.spark.pipeline.section import Section


def shipped_modules() -> set[str]:
    """Those whose functions travel with the tasks."""
    registry: Any = cloudpickle
    return set(registry.list_registry_pickle_by_value())


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """What is imported here is forgotten again."""
    modules, path = set(sys.modules), list(sys.path)
    shipped = shipped_modules()
    yield
    for name in sys.modules.keys() - modules:
        if name.startswith("ottla_view_") or name in ("beside_it", "near_it"):
            del sys.modules[name]
    sys.path[:] = path
    for name in shipped_modules() - shipped:
        cloudpickle.cloudpickle._PICKLE_BY_VALUE_MODULES.discard(name)


def load(directory: Path, path: str) -> Callable[..., Any]:
    return load_function(Section({}, Place("p.yaml", 3), "view v", directory=directory), "python", path)


def refusal(directory: Path, path: str) -> str:
    with pytest.raises(SpecError) as caught:
        load(directory, path)
    return str(caught.value)


def test_a_function_of_a_file_is_loaded_once(tmp_path: Path) -> None:
    (tmp_path / "own_views.py").write_text("calls = []\ndef rows(): return calls\n")
    found = load(tmp_path, "own_views.py:rows")
    found().append(1)
    assert load(tmp_path, "own_views.py:rows")() == [1]
    assert load(tmp_path, f"{tmp_path}/own_views.py:rows")() == [1]
    assert (found.__module__, sys.modules["ottla_view_own_views"].rows) == ("ottla_view_own_views", found)
    assert "ottla_view_own_views" in shipped_modules()


def test_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "same.py").write_text(f"def rows(): return {number}\n")
    assert [load(tmp_path / number, "same.py:rows")() for number in ("1", "2", "1")] == [1, 2, 1]


def test_a_module_beside_the_description_is_found(tmp_path: Path) -> None:
    (tmp_path / "beside_it.py").write_text("def rows(): return 5\n")
    assert load(tmp_path, "beside_it:rows")() == 5
    assert sys.path[0] == str(tmp_path)
    load(tmp_path, "beside_it:rows")
    assert sys.path.count(str(tmp_path)) == 1
    assert "beside_it" in shipped_modules()


def test_relative_directories_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "near_it.py").write_text("def rows(): return 6\n")
    monkeypatch.chdir(tmp_path)
    assert load(Path("views"), "near_it:rows")() == 6
    assert sys.path[0] == str(tmp_path / "views") and os.path.isabs(sys.path[0])


def test_our_own_modules_are_everywhere_already(tmp_path: Path) -> None:
    assert load(tmp_path, "ottla.spark.pipeline.problems:suggestion")("a", ["b"]) == " There is 'b'."
    assert "ottla.spark.pipeline.problems" not in shipped_modules()


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("views.py:rows", "p.yaml:3: view v: there is no file {directory}/views.py"),
        ("folder.py:rows", "p.yaml:3: view v: there is no file {directory}/folder.py"),
        ("fine.py:nothing", "p.yaml:3: view v: fine.py has no function 'nothing'"),
        ("fine.py:number", "p.yaml:3: view v: fine.py has no function 'number'"),
        (
            "no_such_module:rows",
            "p.yaml:3: view v: no_such_module cannot be imported: No module named 'no_such_module'",
        ),
        ("imports.py:rows", "p.yaml:3: view v: imports.py cannot be imported: No module named 'no_such_module'"),
        ("broken.py:rows", "p.yaml:3: view v: broken.py cannot be loaded: "),
        (
            "reads.py:rows",
            "p.yaml:3: view v: reads.py cannot be loaded: [Errno 2] No such file or directory: '/no/way'",
        ),
    ],
)
def test_what_cannot_be_found_or_loaded(tmp_path: Path, path: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = f"ottla_view_{path.partition('.')[0]}"
    monkeypatch.delitem(sys.modules, module, raising=False)
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "fine.py").write_text("number = 5\ndef rows(): ...\n")
    (tmp_path / "imports.py").write_text("import no_such_module\n")
    (tmp_path / "broken.py").write_text("def rows(:\n")
    (tmp_path / "reads.py").write_text("open('/no/way')\n")
    found = refusal(tmp_path, path)
    expected = told.format(directory=tmp_path)
    assert found.startswith(expected) if told.endswith(": ") else found == expected
    assert module not in sys.modules or path.startswith("fine")


def test_a_file_that_was_mended_is_loaded_anew(tmp_path: Path) -> None:
    path = tmp_path / "mended.py"
    path.write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        load(tmp_path, "mended.py:rows")
    path.write_text("def rows(): return 'mended'\n")
    assert load(tmp_path, "mended.py:rows")() == "mended"


def view(function: Callable[..., Any] | str | None) -> View:
    return View("v", Section({}, Place("p.yaml", 3), "view v"), None, function)


def test_the_function_of_a_view(tmp_path: Path) -> None:
    def own() -> None: ...

    assert find_function(view(own)) is own
    assert find_function(view("ottla.spark.pipeline.problems:suggestion"))("a", []) == ""
    with pytest.raises(SpecError, match="no_such_module cannot be imported"):
        find_function(view("no_such_module:f"))


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda: 0, []),
        (lambda clicks, spark: 0, ["clicks", "spark"]),
        (lambda clicks, limit=5: 0, ["clicks"]),
        (lambda clicks, *, users, limit=5: 0, ["clicks", "users"]),
    ],
)
def test_a_function_asks_by_the_names_of_its_parameters(function: Callable[..., Any], inputs: list[str]) -> None:
    assert inputs_of(view(function), function) == inputs


@pytest.mark.parametrize(
    ("function", "name"), [(lambda a, *rows: 0, "rows"), (lambda **frames: 0, "frames"), (lambda *a, **b: 0, "a")]
)
def test_a_function_that_takes_anything_names_no_frames(function: Callable[..., Any], name: str) -> None:
    with pytest.raises(SpecError) as caught:
        inputs_of(view(function), function)
    assert str(caught.value) == (
        f"p.yaml:3: view v: its function takes any arguments ({name}); name the frames it needs"
    )


@pytest.mark.parametrize(
    ("path", "is_one"),
    [("a:b", True), ("a.b.py:_f1", True), ("/x y/z.py:f", True), ("a:1", False), (":b", False), ("a:", False),
     ("a", False), ("a:b:c", False), ("a:b.c", False)],
)  # fmt: skip
def test_how_functions_are_named(path: str, is_one: bool) -> None:
    assert (FUNCTION_PATH.fullmatch(path) is not None) is is_one
