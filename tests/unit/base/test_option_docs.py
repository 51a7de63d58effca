"""Options as rows of a page."""

from __future__ import annotations

from ottla.base.option_docs import table
from ottla.base.options import Between, Matching, Option, Type


def test_a_row_says_what_an_option_takes_has_and_means() -> None:
    options = [
        Option("size", Type.INT, 0, "How much.", valid=Between(0, 5)),
        Option("name", Type.STRING, None, "Who.", deprecated="id"),
        Option("list", Type.LIST, (), "Which.", valid=Matching("a|b", "a|b")),
    ]
    assert table("Setting", options, ("Unit",), lambda option: (option.name[:1],)).splitlines() == [
        "| Setting | Type | Default | Valid | Unit | Meaning |",
        "|---|---|---|---|---|---|",
        "| `list` | list | empty | a\\|b | l | Which. |",
        "| `name` | string | unset |  | n | Who. Deprecated: use id. |",
        "| `size` | int | `0` | 0 to 5 | s | How much. |",
    ]
