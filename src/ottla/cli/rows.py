"""Rows in the form that was asked for: columns for people, JSON or tab-separated values for programs."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import TypeAlias

from ottla.cli.columns import print_columns

Cell: TypeAlias = str | int | float | bool | list[int] | list[str] | dict[str, str] | None
NOTHING = "-"


class Output(StrEnum):
    AUTO = "auto"
    TABLE = "table"
    KAFKA = "kafka"
    JSON = "json"
    TSV = "tsv"

    def resolve(self) -> Output:
        """A table for people, Kafka's own text for programs that read it."""
        if self is Output.AUTO:
            return Output.TABLE if sys.stdout.isatty() else Output.KAFKA
        return self


def show_rows(
    output: str, names: Sequence[str], rows: Collection[Sequence[Cell]], *, right: Collection[str] = ()
) -> None:
    """`names` are those of the JSON fields; tables show them in capitals, with hyphens."""
    match output:
        case "json":
            import json

            print(json.dumps([dict(zip(names, row, strict=True)) for row in rows], indent=2))
        case "tsv":
            print("\t".join(names))
            for row in rows:
                print("\t".join(_text(cell).replace("\t", " ").replace("\n", " ") for cell in row))
        case _:
            titles = {name: name.upper().replace("_", "-") for name in names}
            cells = [[_text(cell) for cell in row] for row in rows]
            print_columns(list(titles.values()), cells, right=[titles[name] for name in right])


def _text(cell: Cell) -> str:
    if cell is None:
        return NOTHING
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, list):
        return ",".join(map(str, cell))
    if isinstance(cell, dict):
        return ",".join(f"{name}={value}" for name, value in cell.items())
    return str(cell)
