"""Rows as tables, as JSON and as tab-separated values, to the blank."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from ottla.cli.columns import print_columns
from ottla.cli.rows import Output, show_rows

NAMES = ["topic", "log_end_offset", "more"]
ROWS: list[list[Any]] = [["t", 7, None], ["longer\tx", 1234567, ["a", "b"]]]


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        (
            "table",
            [
                "TOPIC     LOG-END-OFFSET  MORE",
                "t                      7  -",
                "longer\tx         1234567  a,b",
            ],
        ),
        ("tsv", ["topic\tlog_end_offset\tmore", "t\t7\t-", "longer x\t1234567\ta,b"]),
        (
            "json",
            [
                "[",
                "  {",
                '    "topic": "t",',
                '    "log_end_offset": 7,',
                '    "more": null',
                "  },",
                "  {",
                '    "topic": "longer\\tx",',
                '    "log_end_offset": 1234567,',
                '    "more": [',
                '      "a",',
                '      "b"',
                "    ]",
                "  }",
                "]",
            ],
        ),
    ],
)
def test_rows_in_each_form(output: str, shown: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(output, NAMES, ROWS, right=["log_end_offset"])
    assert capsys.readouterr().out.split("\n") == [*shown, ""]


@pytest.mark.parametrize(
    ("output", "shown"), [("table", ""), ("tsv", "topic\tlog_end_offset\tmore\n"), ("json", "[]\n")]
)
def test_no_rows(output: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(output, NAMES, [])
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (None, "-"),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (1.5, "1.5"),
        ("", ""),
        ("a\nb", "a b"),
        ([], ""),
        ([1, 2], "1,2"),
        ({"a": "1", "b": "2"}, "a=1,b=2"),
    ],
)
def test_cells(cell: Any, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    show_rows("tsv", ["x"], [[cell]])
    assert capsys.readouterr().out == f"x\n{text}\n"


def test_columns_are_as_wide_as_they_need_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    print_columns(("A", "LONG"), [("aaa", "1"), ("a", "12")], right=("LONG",))
    assert capsys.readouterr().out == "A    LONG\naaa     1\na      12\n"
    print_columns(("A", "B"), [("x", "")])
    assert capsys.readouterr().out == "A  B\nx\n"
    with pytest.raises(ValueError, match="zip"):
        print_columns(("A",), [("x", "y")])


@pytest.mark.parametrize("at_terminal", [False, True])
def test_people_get_tables_and_programs_kafkas_text(at_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: at_terminal)
    chosen = {kind: kind.resolve() for kind in Output}
    auto = Output.TABLE if at_terminal else Output.KAFKA
    assert chosen == {**{kind: kind for kind in Output}, Output.AUTO: auto}
    assert [kind.value for kind in Output] == ["auto", "table", "kafka", "json", "tsv"]
