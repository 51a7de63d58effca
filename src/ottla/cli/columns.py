"""Rows for people, in columns that are as wide as they need to be."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def print_columns(names: Sequence[str], rows: Collection[Sequence[str]], *, right: Collection[str] = ()) -> None:
    """Nothing without rows. The columns named by `right` hold numbers."""
    if not rows:
        return
    shown = [names, *rows]
    widths = [max(len(row[column]) for row in shown) for column in range(len(names))]
    for row in shown:
        cells = [
            cell.rjust(width) if name in right else cell.ljust(width)
            for name, cell, width in zip(names, row, widths, strict=True)
        ]
        print("  ".join(cells).rstrip())
