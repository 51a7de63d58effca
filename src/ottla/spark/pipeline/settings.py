"""Spark's own settings as a pipeline gives them (`spark: conf:`), applied to its session.

Spark ignores a setting it does not know. One below `spark.sql.` that is not in its registry is refused here: most
likely it is misspelt. Settings of other namespaces are read by too many others to tell.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from ottla.spark.pipeline.model import Model
from ottla.spark.pipeline.problems import Problem, SpecError
from ottla.spark.pipeline.sql_errors import short_message

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PREFIX = "spark.sql."
_LOADED_LATER = ("spark.sql.catalog.", "spark.sql.hive.")
"""Names of one's own, and those of modules that are not loaded before they are used."""
_NEAR = 0.85
_KEY = re.compile(r"\bkey=(spark\.[\w.]+)")


def apply_settings(session: SparkSession, model: Model) -> None:
    """SpecError names all settings that Spark does not know, or whose value it refuses."""
    problems: list[Problem] = []
    for name, value in model.conf.items():
        wrong = find_unknown(session, name) or _refusal(session, name, value)
        if wrong is not None:
            place = model.place if model.conf_section is None else model.conf_section.place_of(name)
            problems.append(Problem(place, f"spark.conf: {wrong}"))
    if problems:
        raise SpecError(problems)


def find_unknown(session: SparkSession, name: str) -> str | None:
    """What to say of a setting that Spark does not know; None if it does, or if it may be somebody else's."""
    jvm: Any = session._jvm
    if not name.startswith(_PREFIX) or name.startswith(_LOADED_LATER):
        return None
    if jvm.org.apache.spark.internal.config.ConfigEntry.findEntry(name) is not None:
        return None
    registry = getattr(getattr(jvm.org.apache.spark.sql.internal, "SQLConf$"), "MODULE$")
    # One call: to ask each of the eight hundred entries for its key would take as many.
    known = _KEY.findall(registry.getConfigEntries().toString())
    near = difflib.get_close_matches(name, known, cutoff=_NEAR)
    if near:
        return f"Spark has no setting {name!r}. Did you mean {near[0]!r}?"
    room = ".".join(name.split(".")[:3])
    is_foreign = not any(key == room or key.startswith(f"{room}.") for key in known)
    return None if is_foreign else f"Spark has no setting {name!r}"


def _refusal(session: SparkSession, name: str, value: str) -> str | None:
    if not session.conf.isModifiable(name):
        return None
    try:
        session.conf.set(name, value)
    except PySparkException as e:
        return short_message(e)
    return None
