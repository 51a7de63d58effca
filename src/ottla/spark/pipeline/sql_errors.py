"""Spark's errors in the words a user needs: one sentence, and the line of the query it is about."""

from __future__ import annotations

import re

from pyspark.errors import PySparkException

_POSITION = re.compile(r"\(line (\d+), pos \d+\)|; line (\d+) pos \d+")
_CONDITION = re.compile(r"^\s*\[[A-Z0-9_.]+\]\s*")
_SQL_STATE = re.compile(r"\s*SQLSTATE: \w+")
_PYTHON_ERROR = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception|Interrupt|Exit|Failure)): ?(.*)$", re.MULTILINE)
_JAVA_ERROR = re.compile(r"\AAn error occurred while calling [^\n]*\n: (?:[\w$]+\.)+[\w$]+: ")
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.*)")
"""What a query raises by itself: a record it cannot read, or a user's own `raise_error`."""
_JAVA_CAUSE = re.compile(r"^Caused by: (?:[\w$]+\.)*([\w$]+): (.+)$", re.MULTILINE)
_STACK_LINE = re.compile(r"^\t(?:at |\.\.\. \d+ more).*\n?", re.MULTILINE)
_PLAN = "=== Streaming Query ==="
_TRACEBACK = "Traceback (most recent call last)"
_FROM_JAVA = ("Py4JJavaError", "Py4JError")
_BAD_INTERVAL = re.compile(r"\[CANNOT_PARSE_INTERVAL\] Unable to parse ('.*?')\.")
NOT_FOUND = "TABLE_OR_VIEW_NOT_FOUND"


def short_message(error: BaseException) -> str:
    """What went wrong, without plans, stack traces and codes."""
    return shorten(str(error))


def shorten(text: str) -> str:
    """The sentence in a message of Spark's, wherever in the layers of Python and Java it is buried: what the query
    raised, the innermost Python error, the innermost cause in Java, or what comes before plan and stack."""
    told = _STACK_LINE.sub("", text.split(_PLAN)[0])
    if raised := _RAISED.search(told):
        return _cleaned(raised[1])
    if interval := _BAD_INTERVAL.search(told):
        return f"{interval[1]} is not a length of time. Write it as in '10 seconds' or '5 minutes'"
    errors = _PYTHON_ERROR.findall(told[told.rindex(_TRACEBACK) :]) if _TRACEBACK in told else []
    kind, message = errors[-1] if errors else ("", "")
    if kind and kind not in _FROM_JAVA:
        return f"{kind}: {_cleaned(message)}" if message else kind
    if kind and (causes := _JAVA_CAUSE.findall(told)):
        kind, message = causes[-1]
        return f"{kind}: {_cleaned(message)}"
    return _cleaned(text)


def _cleaned(text: str) -> str:
    in_java = _JAVA_ERROR.search(text)
    text = text if in_java is None else text[in_java.end() :]
    text = _SQL_STATE.split(text, maxsplit=1)[0]
    text = _CONDITION.sub("", text.strip())
    # What follows the first line is advice on catalogs, a plan or a stack trace.
    first_line = text.split("\n", 1)[0].strip()
    return first_line.removesuffix(".")


def line_of(error: PySparkException) -> int:
    """The line of the query that an error is about, counted from one; 1 if it does not say."""
    matched = _POSITION.search(str(error))
    return int(matched[1] or matched[2]) if matched else 1


def missing_relation(error: PySparkException) -> str | None:
    """The table or view a query names and Spark does not know; None if the error is another one."""
    if error.getCondition() != NOT_FOUND:
        return None
    name = (error.getMessageParameters() or {}).get("relationName", "")
    return name.replace("`", "")
