"""Spark's errors in the words a user needs: one sentence, and the line of the query it is about."""

from __future__ import annotations

import re

from pyspark.errors import PySparkException

_POSITION = re.compile(r"\(line (\d+), pos \d+\)|; line (\d+) pos \d+")
_CONDITION = re.compile(r"^\s*\[[A-Z0-9_.]+\]\s*")
_SQL_STATE = re.compile(r"\s*SQLSTATE: \w+")
_PYTHON_ERROR = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception|Interrupt|Exit|Failure)): ?(.*)$", re.MULTILINE)
_JAVA_ERROR = re.compile(r"\AAn error occurred while calling [^\n]*\n: (?:[\w$]+\.)+[\w$]+: ")
NOT_FOUND = "TABLE_OR_VIEW_NOT_FOUND"


def short_message(error: BaseException) -> str:
    """What went wrong, without plans, stack traces and codes."""
    return shorten(str(error))


def shorten(text: str) -> str:
    """The sentence in a message of Spark's: a Python traceback's last error, or what comes before plan and stack."""
    if "Traceback (most recent call last)" in text:
        head = text.split("=== Streaming Query ===")[0].split("\n\tat ")[0]
        errors = _PYTHON_ERROR.findall(head[head.rindex("Traceback (most recent call last)") :])
        if errors:
            kind, message = errors[-1]
            return f"{kind}: {_cleaned(message)}" if message else kind
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
