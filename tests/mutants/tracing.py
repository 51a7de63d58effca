"""Which tests call which functions, and how long they take: so that a mutant meets those first that may notice it.

The others follow all the same. What runs in another process, or only once and is then kept, is seen by no trace.
"""

from __future__ import annotations

import ast
import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

Function = tuple[str, int]
"""Module below src/ottla and the first line of the function, decorators included."""

_PATIENCE_S = 10.0
_SLACK = 4
"""How much longer than usual a test may take before it is taken for an endless loop."""


class Trace(NamedTuple):
    seconds: dict[str, float]
    """By test."""
    callers: dict[Function, set[str]]

    @classmethod
    def read(cls, path: Path) -> Trace:
        content = json.loads(path.read_text())
        callers = {(module, line): set(tests) for module, line, tests in content["callers"]}
        return cls(content["seconds"], callers)

    def tests_of(self, module: Path, source: str, line: int) -> set[str]:
        first_line = _function_around(source, line)
        return set() if first_line is None else self.callers.get((str(module), first_line), set())


class Recorder:
    """A plugin of pytest that writes a trace at the end of the session."""

    def __init__(self, source: Path, output: Path) -> None:
        self._prefix = f"{source}/"
        self._output = output
        self._seconds: dict[str, float] = {}
        self._callers: dict[Function, set[str]] = defaultdict(set)
        self._seen: set[object] = set()
        self._test = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._test = item.nodeid
        self._seen = set()
        began = time.perf_counter()
        threading.settrace(self._note)
        sys.settrace(self._note)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            self._seconds[item.nodeid] = time.perf_counter() - began

    def pytest_sessionfinish(self) -> None:
        callers = [(module, line, sorted(tests)) for (module, line), tests in self._callers.items()]
        self._output.write_text(json.dumps({"seconds": self._seconds, "callers": callers}))

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if code not in self._seen:
            self._seen.add(code)
            if code.co_filename.startswith(self._prefix):
                module = code.co_filename.removeprefix(self._prefix)
                self._callers[module, code.co_firstlineno].add(self._test)


class CallersFirst:
    """A plugin of pytest that runs some tests before all others, the quickest modules of them first."""

    def __init__(self, first: set[str], trace: Trace) -> None:
        self._first = first
        self._trace = trace

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        # Tests of a module stay together, or what they share would be set up again and again.
        seconds: dict[Path, float] = defaultdict(float)
        for item in items:
            usual_s = self._trace.seconds.get(item.nodeid, 0.0)
            item.add_marker(pytest.mark.timeout(_PATIENCE_S + _SLACK * usual_s))
            if item.nodeid in self._first:
                seconds[item.path] += usual_s
        items.sort(key=lambda item: (item.nodeid not in self._first, seconds[item.path]))


def _function_around(source: str, line: int) -> int | None:
    """The first line of the innermost function that the line is part of."""
    found = None
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first <= line <= (node.end_lineno or line) and (found is None or first > found):
                found = first
    return found
