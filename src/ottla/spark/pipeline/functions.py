"""Finds the Python functions that a description names, and what those of views ask for.

A view's function asks by the names of its parameters: each is a source, a table or another view; `spark` is the
session.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from ottla.spark.pipeline.model import View
from ottla.spark.pipeline.section import Section

SESSION = "spark"
FUNCTION_PATH = re.compile(r"[^:]+:[A-Za-z_]\w*")
"""How a description names a function."""


def find_function(view: View) -> Callable[..., Any]:
    """SpecError says why there is none."""
    if not isinstance(view.function, str):
        assert view.function is not None
        return view.function
    return load_function(view.section, "python", view.function)


def load_function(section: Section, key: str, path: str) -> Callable[..., Any]:
    """The function that a section names under a key, as `module:function` or `file.py:function`; it travels with the
    tasks. SpecError says why there is none."""
    module_name, _, name = path.rpartition(":")
    module = _find_module(section, key, module_name)
    found = getattr(module, name, None)
    if not callable(found):
        section.fail(key, f"{module_name} has no function {name!r}")
    _ship_with_tasks(module)
    function: Callable[..., Any] = found
    return function


def inputs_of(view: View, function: Callable[..., Any]) -> list[str]:
    """The names of the frames a function takes, SESSION among them. Parameters with a default are left alone."""
    parameters = inspect.signature(function).parameters.values()
    open_ended = [p.name for p in parameters if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if open_ended:
        view.section.fail("python", f"its function takes any arguments ({open_ended[0]}); name the frames it needs")
    return [parameter.name for parameter in parameters if parameter.default is parameter.empty]


def _find_module(section: Section, key: str, name: str) -> ModuleType:
    directory = section.directory.absolute()
    try:
        if name.endswith(".py"):
            return _load_file(section, key, (directory / name).resolve())
        if str(directory) not in sys.path:
            sys.path.insert(0, str(directory))
        return import_module(name)
    except ImportError as e:
        section.fail(key, f"{name} cannot be imported: {e}")
    except (SyntaxError, OSError) as e:
        section.fail(key, f"{name} cannot be loaded: {e}")


def _load_file(section: Section, key: str, path: Path) -> ModuleType:
    name = f"ottla_view_{path.stem}"
    loaded = sys.modules.get(name)
    if loaded is not None and loaded.__file__ == str(path):
        return loaded
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        section.fail(key, f"there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _ship_with_tasks(module: ModuleType) -> None:
    """Executors on other machines have not got the module's file: its functions travel with the tasks, as those of a
    script would."""
    from pyspark import cloudpickle

    if not module.__name__.startswith("ottla."):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
