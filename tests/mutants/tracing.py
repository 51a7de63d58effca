"""Which tests call which functions, and how long they take: so that a mutant meets those that may notice it.

A file of tests is traced once, in a process of its own, and the trace is kept until the file changes. What its tests
call themselves is known by test; what processes they start call (brokers, commands, workers of Spark), by file.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

Function = tuple[str, str]
"""Module below src/ottla and the qualified name of the function."""

_CALLS_MAX = 5_000_000
"""By then a test has called what it calls (a simulation judges at its end): more would only take longer."""

TRACED_PROCESS = '''"""Imported by every Python process that a traced test starts."""
import os, sys, threading

_prefix, _folder, _seen = os.environ["MUTANTS_SOURCE"], os.environ["MUTANTS_TRACE"], set()


def _note(frame, event, argument):
    code = frame.f_code
    if code not in _seen:
        _seen.add(code)
        if code.co_filename.startswith(_prefix):
            with open(f"{_folder}/{os.getpid()}", "a") as file:
                file.write(f"{code.co_filename.removeprefix(_prefix)} {code.co_qualname}\\n")


threading.settrace(_note)
sys.settrace(_note)
'''
"""Becomes `sitecustomize.py`. It writes at once: a broker may be killed."""


class Trace(NamedTuple):
    """Of one file of tests."""

    seconds: dict[str, float]
    """By test."""
    callers: dict[Function, set[str]]

    @classmethod
    def read(cls, path: Path) -> Trace:
        content = json.loads(path.read_text())
        callers = {(module, name): set(tests) for module, name, tests in content["callers"]}
        return cls(content["seconds"], callers)

    def tests_of(self, function: Function) -> set[str]:
        return self.callers.get(function, set())

    def tests_in(self, module: str) -> set[str]:
        return {test for (called, _), tests in self.callers.items() if called == module for test in tests}


class Recorder:
    """A plugin of pytest that writes the trace of the session, which runs one file."""

    def __init__(self, source: Path, processes: Path, output: Path) -> None:
        self._prefix = f"{source}/"
        self._processes = processes
        self._output = output
        self._seconds: dict[str, float] = {}
        self._callers: dict[Function, set[str]] = defaultdict(set)
        self._seen: set[object] = set()
        self._test = ""
        self._calls = 0
        self._lost: set[str] = set()
        """Tests in which somebody else has put an end to the trace: what they call is not known."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Iterator[object]:
        """What is called to make parameters is called for every test: its mutants fail the collection."""
        sys.settrace(self._note)
        try:
            return (yield)
        finally:
            sys.settrace(None)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._test = item.nodeid
        self._seen = set()
        self._calls = 0
        began = time.perf_counter()
        threading.settrace(self._note)
        sys.settrace(self._note)
        try:
            return (yield)
        finally:
            if sys.gettrace() is None and self._calls <= _CALLS_MAX:
                self._lost.add(item.nodeid)
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            self._seconds[item.nodeid] = time.perf_counter() - began

    def pytest_sessionfinish(self) -> None:
        at_collection = [function for function, tests in self._callers.items() if "" in tests]
        for function in (*noted_by_processes(self._processes), *at_collection):
            self._callers[function].update(self._seconds)
            self._callers[function].discard("")
        for tests in self._callers.values():
            tests |= self._lost
        callers = [(module, name, sorted(tests)) for (module, name), tests in self._callers.items()]
        self._output.write_text(json.dumps({"seconds": self._seconds, "callers": callers}))

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        self._calls += 1
        if self._calls > _CALLS_MAX:
            sys.settrace(None)
        code = frame.f_code
        if code not in self._seen:
            self._seen.add(code)
            if code.co_filename.startswith(self._prefix):
                module = code.co_filename.removeprefix(self._prefix)
                self._callers[module, code.co_qualname].add(self._test)


def noted_by_processes(folder: Path) -> set[Function]:
    lines = (line for file in folder.iterdir() for line in file.read_text().splitlines())
    return {(module, name) for module, name in (line.split(" ", 1) for line in lines)}


class Plan(NamedTuple):
    """The tests one mutant meets: in this order, and each for so long until it is taken for an endless loop."""

    timeouts_s: dict[str, float]
    seconds: float
    """That they usually take together."""

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(test.partition("::")[0] for test in self.timeouts_s))


def plan(
    module: str,
    name: str | None,
    traces: dict[str, Trace],
    box_s: float,
    patience_s: float,
    *,
    first: Collection[str] = (),
    met: Collection[str] = (),
) -> Plan:
    """The callers of the function that it has not met yet, as many as fit into the box.

    The files in `first` come first, and then the quickest; at the end the other tests in `first`, for what a trace has
    missed or was made before.

    Anyone may depend on code outside functions, and on what is called from there: for None, that is all tests, those
    first that call anything in the module.
    """
    timeouts: dict[str, float] = {}
    spent = 0.0
    rounds = (
        [
            {file: trace.tests_of((module, name)) for file, trace in traces.items()},
            {file: set(trace.seconds) for file, trace in traces.items() if file in first},
        ]
        if name is not None
        else [
            {file: trace.tests_in(module) for file, trace in traces.items()},
            {file: set(trace.seconds) for file, trace in traces.items()},
        ]
    )
    for callers in rounds:
        usual = {file: sum(traces[file].seconds[test] for test in tests) for file, tests in callers.items()}
        for file in sorted(usual, key=lambda file: (file not in first, usual[file], file)):
            # Tests of a file stay together, in their order: what they share would be set up again and again.
            for test in traces[file].seconds:
                if test in callers[file] and test not in met and test not in timeouts and spent <= box_s:
                    spent += traces[file].seconds[test]
                    timeouts[test] = patience_s + 5 * traces[file].seconds[test]
    return Plan(timeouts, spent)


class Planned:
    """A plugin of pytest that runs the tests of a plan and, of the files with them, those without a trace.

    A mutant that changes a parameter changes the name of its test.
    """

    def __init__(self, plan: Plan, traced: Collection[str], patience_s: float) -> None:
        self._timeouts_s = plan.timeouts_s
        self._place = {test: place for place, test in enumerate(plan.timeouts_s)}
        self._traced = traced
        self._patience_s = patience_s

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self._place or item.nodeid not in self._traced]
        items.sort(key=lambda item: self._place.get(item.nodeid, -1))
        for item in items:
            item.add_marker(pytest.mark.timeout(self._timeouts_s.get(item.nodeid, self._patience_s)))


def digest(file: Path) -> str:
    """A trace is good for as long as its tests are the same: that functions move and change does it no harm."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def function_around(source: str, line: int) -> str | None:
    """The qualified name of the innermost function that the line is part of."""
    around = [(first, name) for first, last, name in _functions_of(source) if first <= line <= last]
    return max(around)[1] if around else None


@cache
def _functions_of(source: str) -> list[tuple[int, int, str]]:
    """Their first and last lines, and their names."""
    found: list[tuple[int, int, str]] = []

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
                found.append((first, child.end_lineno or first, f"{prefix}{child.name}"))
                visit(child, f"{prefix}{child.name}.<locals>.")
            elif isinstance(child, ast.ClassDef):
                visit(child, f"{prefix}{child.name}.")
            else:
                visit(child, prefix)

    visit(ast.parse(source), "")
    return found
