"""The mistakes that `make mutants` plants: each kind is found, none where no test could see it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants.operators import apply, edits_of
from tests.mutants.selection import SOURCE, choose, modules, own_tests
from tests.mutants.tracing import Trace


def mutants(source: str) -> set[str]:
    return {apply(source, edit) for edit in edits_of(source)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", {"x = (a <= b)", "x = (a >= b)"}),
        ("x = a in b", {"x = (a not in b)"}),
        ("x = a and b", {"x = (a or b)"}),
        ("x = a + b", {"x = (a - b)"}),
        ("x = not a", {"x = (a)"}),
        ("x = 5", {"x = 6", "x = 4"}),
        ("x = True", {"x = False"}),
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
        "class A(Protocol):\n    x = 1",
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


def test_every_module_has_tests_of_its_own_layer() -> None:
    for path in modules(""):
        assert own_tests(path) != ("tests/unit/.",), path


def test_the_callers_of_the_innermost_function_come_first() -> None:
    source = "def outer():\n    @decorated\n    def inner():\n        return 1\n    return inner\nx = 1\n"
    trace = Trace({}, {("m.py", 1): {"calls outer"}, ("m.py", 2): {"calls inner"}})
    found = [trace.tests_of(Path("m.py"), source, line) for line in (4, 5, 6)]
    assert found == [{"calls inner"}, {"calls outer"}, set()]
