"""The mistakes that `make mutants` plants: each kind is found, none where no test could see it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.operators import apply, edits_of, lines_of
from tests.mutants.runner import Copy, Run
from tests.mutants.selection import (
    EQUIVALENT,
    SOURCE,
    Mutant,
    all_tests,
    choose,
    files_about,
    find,
    listed,
    modules,
    own_tests,
    wider_tests,
    written,
)
from tests.mutants.tracing import Trace, function_around, plan
from tests.waiting import repeat_until


def mutants(source: str) -> set[str]:
    return {apply(source, edit) for edit in edits_of(source)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", {"x = (a <= b)", "x = (a >= b)"}),
        ("x = a in b", {"x = (a not in b)"}),
        ("x = time.monotonic() >= a", {"x = (time.monotonic() < a)"}),
        (
            "x = 0 < a < rng.random()",
            {
                "x = (0 < a >= rng.random())",
                "x = (0 <= a < rng.random())",
                "x = (0 >= a < rng.random())",
                "x = 1 < a < rng.random()",
            },
        ),
        ("x = a and b", {"x = (a or b)"}),
        ("x = a + b", {"x = (a - b)"}),
        ("x = not a", {"x = (a)"}),
        (
            'def f():\n    a -= b\n    """Of a."""',
            {'def f():\n    a += b\n    """Of a."""', 'def f():\n    pass\n    """Of a."""'},
        ),
        ("x = 5", {"x = 6", "x = 4"}),
        ("x = True", {"x = False"}),
        ("_RETRY_MS = 5", {"_RETRY_MS = 6", "_RETRY_MS = 4"}),
        ("_ROWS_MAX = 1000", {"_ROWS_MAX = 1001", "_ROWS_MAX = 999"}),
        ("x = (a + b) / 1000", {"x = ((a - b)) / 1000"}),
        ("f()", {"pass"}),
        ("a.b = c", {"pass"}),
        ("a += b", {"pass", "a -= b"}),
        ("x = {a, b}", {"x = {a}", "x = {b}"}),
        ("x = {a: b, c: d}", {"x = {a: b}", "x = {c: d}"}),
        ("x = a if b else c", {"x = a if (not (b)) else c"}),
        ("if a:\n    g = 'ü'; raise E", {"if not (a):\n    g = 'ü'; raise E", "if a:\n    g = 'ü'; pass"}),
        ("x = ErrorCode.NONE", {"x = ErrorCode.INVALID_REQUEST", "x = ErrorCode.UNKNOWN_SERVER_ERROR"}),
    ],
)
def test_each_kind_of_mistake(source: str, expected: set[str]) -> None:
    assert mutants(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""A text."""',
        "import a",
        "x: int | None",
        "_log.warning('%d', 1 + a)",
        "def __repr__(self): return 1 + a",
        "__slots__ = ('a', 'b')",
        "if TYPE_CHECKING:\n    x = 1",
        "x = f'{1 + a}'",
        "x = 'a' + b",
        "T = TypeVar('T', bound=1)",
        "Order: TypeAlias = Literal['a', 'b']",
        "_EXAMPLES = ('ottla topics list', 'ottla topics create t')",
        "class A(Protocol):\n    x = 1",
        "_TIMEOUT_MS = 30_000",
        "PAUSE_S_MAX: Final = 3600",
        "x = wait_ms / 1000",
    ],
)
def test_what_nobody_can_see_is_left_alone(source: str) -> None:
    assert mutants(source) == set()


def test_a_seed_decides_and_every_mutant_is_a_program() -> None:
    chosen = choose(7, 40, "src/ottla/wire")
    assert chosen == choose(7, 40, "wire")
    assert chosen != choose(8, 40, "wire")
    assert len(chosen) == 40
    for mutant in chosen:
        source = (SOURCE / mutant.path).read_text()
        assert apply(source, mutant.edit) != source
        ast.parse(apply(source, mutant.edit))


def test_every_module_has_tests_of_its_own_layer_and_others() -> None:
    for path in modules(""):
        assert own_tests(path) and wider_tests(path), path
        assert len(own_tests(path)) < len(all_tests(path)) / 5, f"{path} has no layer"


def test_a_function_is_known_by_its_qualified_name() -> None:
    inner = "        @decorated\n        def inner():\n            return 1\n"
    source = f"class A:\n    def outer(self):\n{inner}        return 2\nx = 1\n"
    assert [function_around(source, line) for line in (2, 3, 5, 6, 7)] == [
        "A.outer",
        "A.outer.<locals>.inner",
        "A.outer.<locals>.inner",
        "A.outer",
        None,
    ]


TRACES = {
    "slow.py": Trace({"slow.py::a": 5.0, "slow.py::b": 1.0}, {("m.py", "f"): {"slow.py::a"}}),
    "quick.py": Trace({"quick.py::a": 1.0, "quick.py::b": 1.0}, {("m.py", "f"): {"quick.py::b", "quick.py::a"}}),
    "other.py": Trace({"other.py::a": 0.5}, {}),
}


@pytest.mark.parametrize(
    ("name", "box_s", "expected"),
    [
        ("f", 60, ["quick.py::a", "quick.py::b", "slow.py::a"]),
        ("f", 1.5, ["quick.py::a", "quick.py::b"]),
        ("nobody's", 60, []),
        (None, 60, ["quick.py::a", "quick.py::b", "slow.py::a", "other.py::a", "slow.py::b"]),
        (None, 1.5, ["quick.py::a", "quick.py::b"]),
    ],
)
def test_a_mutant_meets_the_callers_of_its_function_within_a_time(
    name: str | None, box_s: float, expected: list[str]
) -> None:
    chosen = plan("m.py", name, TRACES, box_s, patience_s=10)
    assert list(chosen.timeouts_s) == expected
    assert all(timeout_s > 10 for timeout_s in chosen.timeouts_s.values())


def test_a_survivor_meets_other_tests_than_before_and_those_about_its_module_first() -> None:
    chosen = plan("m.py", "f", TRACES, 60, 10, first={"slow.py"}, met={"quick.py::a"})
    assert list(chosen.timeouts_s) == ["slow.py::a", "quick.py::b", "slow.py::b"], "at last those that are no callers"
    chosen = plan("m.py", "not in a trace", TRACES, 60, 10, first={"slow.py"})
    assert {test.partition("::")[0] for test in chosen.timeouts_s} == {"slow.py"}


def test_files_about_a_module_are_found_wherever_they_lie() -> None:
    redrive = Path("spark/pipeline/redrive/redrive.py")
    assert "tests/spark/test_redrive.py" in files_about(redrive) <= set(wider_tests(redrive)) < set(all_tests(redrive))
    assert "tests/cluster/test_start_brokers.py" in files_about(Path("cli/start.py"))
    assert len(files_about(Path("base/types.py"))) < 10, "everybody imports it"


def test_a_mutant_is_known_by_its_text_wherever_it_stands(tmp_path: Path) -> None:
    chosen = {mutant.identity: "because" for mutant in choose(7, 10, "wire")}
    file = tmp_path / "listed.toml"
    file.write_text(written(chosen))
    assert listed(file) == chosen
    assert {mutant.identity for mutant in find(chosen).values()} == set(chosen)
    source = "x = 1\n\ndef f(a, b):\n    return (\n        a <  b)\n"
    (edit,) = [edit for edit in edits_of(source) if edit.new == "(a >= b)"]
    assert lines_of(source, edit) == ("a < b)", "(a >= b))")


def test_what_is_listed_as_without_effect_has_a_reason() -> None:
    assert [identity for identity, why in listed(EQUIVALENT).items() if len(why) < 20] == []


def test_a_run_that_is_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    """Also of what its tests have started."""
    copy = object.__new__(Copy)
    copy.folder = tmp_path
    (tmp_path / "test_hang.py").write_text(
        "import pathlib, subprocess, time\n\n\ndef test_it():\n"
        "    child = subprocess.Popen(['sleep', '600'])\n"
        "    pathlib.Path('pid').write_text(str(child.pid))\n"
        "    time.sleep(600)\n"
    )
    run = Run(copy, ["test_hang.py"], 600)
    run.start()
    pid = tmp_path / "pid"
    repeat_until(lambda: run.poll() is not None or (pid.exists() and bool(pid.read_text())))
    assert pid.exists(), run.output
    run.kill()
    repeat_until(lambda: not is_running(int(pid.read_text())))


def test_mistakes_of_one_length_and_second_are_met_although_modules_are_kept_compiled(tmp_path: Path) -> None:
    copy = object.__new__(Copy)
    copy.folder, copy._mutated = tmp_path, None
    module = copy.source / "digit.py"
    module.parent.mkdir(parents=True)
    module.write_text("DIGIT = 5\n")
    edits = edits_of(module.read_text())
    program = "import sys; sys.dont_write_bytecode = False; import digit; print(digit.DIGIT)"
    seen = []
    for mutant in (None, *(Mutant(Path(module.name), edit) for edit in edits), None):
        copy.take(mutant)
        os.utime(module, (1_700_000_000, 1_700_000_000))
        found = subprocess.run([sys.executable, "-c", program], cwd=module.parent, capture_output=True, check=True)
        seen.append(int(found.stdout))
        assert list(module.parent.glob("__pycache__/digit.*.pyc"))
    assert seen == [5, 6, 4, 5]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
