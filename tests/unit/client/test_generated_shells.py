"""The clients for threads say what those for asyncio say: most of them is generated, and up to date."""

from __future__ import annotations

import inspect

import pytest

import ottla
from scripts.sync_shells import CLIENT, SHELLS, render
from scripts.unasync import Shell

OTHERWISE = {
    ("Producer", "send"),
    ("Producer", "close"),
    ("Consumer", "unsubscribe"),
    ("Consumer", "commit_async"),
    ("ParallelConsumer", "stop"),
}
"""What is not the same for threads, and says so."""


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell.path)
def test_what_is_generated_is_up_to_date(shell: Shell) -> None:
    assert (CLIENT / "sync" / shell.path).read_text(encoding="utf-8") == render(shell), "run: make generate"


@pytest.mark.parametrize("name", ["Producer", "Consumer", "ParallelConsumer", "Admin"])
def test_what_is_written_by_hand_has_the_same_types_and_docstrings(name: str) -> None:
    threads, tasks = getattr(ottla, name), getattr(ottla.aio, name)
    for method, found in inspect.getmembers_static(threads, inspect.isfunction):
        if not method.startswith("_"):
            other = getattr(tasks, method)
            expected = {part: hint.replace("AsyncIterator", "Iterator") for part, hint in other.__annotations__.items()}
            assert found.__annotations__ == expected, method
            if (name, method) not in OTHERWISE:
                assert inspect.getdoc(found) == inspect.getdoc(other), method


def test_words_that_the_source_does_not_say_any_more_are_an_error() -> None:
    outdated = SHELLS[0]._replace(words=(("not said anywhere", "anything"),))
    with pytest.raises(ValueError, match="not said anywhere"):
        render(outdated)
