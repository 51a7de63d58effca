"""Shows the rows: a table on the terminal, and JSON, Markdown and a plot in bench/results."""

from __future__ import annotations

import json
import os
import platform
import time
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.row import Row

RESULTS = Path(__file__).parent / "results"
_COLUMNS = ("case", "broker", "against", "other", "ratio", "floor", "goal", "verdict")
_STYLES = {"goal": "green", "floor": "yellow", "MISS": "bold red"}
_COLOURS = {
    "goal": "#2a7f4f",
    "floor": "#c9a227",
    "MISS": "#b3382c",
    "for information": "#888888",
}


def cells(row: Row) -> list[str]:
    def number(value: float | None) -> str:
        return "" if value is None else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"

    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    return [
        row.title,
        f"{number(row.value)} {row.unit}",
        row.against,
        number(row.other),
        ratio,
        number(row.floor),
        number(row.goal),
        row.verdict,
    ]


def show(console: Console, rows: list[Row]) -> None:
    table = Table(title="The broker against limits and peers, medians of one run", title_justify="left")
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column in ("case", "against", "verdict") else "right")
    for row in rows:
        table.add_row(*cells(row), style=_STYLES.get(row.verdict, ""))
    console.print(table)
    for line in _notes(rows):
        console.print(line, style="dim", highlight=False)


def machine() -> dict[str, str]:
    return {
        "processors": str(os.cpu_count()),
        "architecture": platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
    }


def write(name: str, rows: list[Row], *, language: str, rounds: int, load_before: float) -> list[Path]:
    """`load_before` is the machine's load average before the run: what else it was busy with."""
    RESULTS.mkdir(exist_ok=True)
    facts = {
        **machine(),
        "load and limits written in": language,
        "rounds": str(rounds),
        "load average before the run": f"{load_before:.1f}",
    }
    paths = [RESULTS / f"{name}.{kind}" for kind in ("json", "md", "png")]
    content = {"setting": facts, "rows": [{**asdict(row), "verdict": row.verdict} for row in rows]}
    paths[0].write_text(json.dumps(content, indent=1) + "\n")
    paths[1].write_text(_markdown(facts, rows))
    _plot(paths[2], rows)
    return paths


def _markdown(facts: dict[str, str], rows: list[Row]) -> str:
    setting = ", ".join(f"{name}: {value}" for name, value in facts.items())
    lines = ["# Bench", "", f"{setting}.", "", "| " + " | ".join(_COLUMNS) + " |", "|" + "---|" * len(_COLUMNS)]
    lines += ["| " + " | ".join(cells(row)) + " |" for row in rows]
    return "\n".join([*lines, "", *_notes(rows)]) + "\n"


def _notes(rows: list[Row]) -> list[str]:
    return [f"- {row.title}, against {row.against or 'nobody'}: {row.notes}." for row in rows if row.notes]


def _plot(path: Path, rows: list[Row]) -> None:
    """Every ratio so that longer is better and one is equality, with a mark for the floor that is owed."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = [row for row in rows if row.ratio is not None][::-1]
    figure, axes = plt.subplots(figsize=(9, 1.2 + 0.34 * len(shown)))
    for place, row in enumerate(shown):
        assert row.ratio is not None
        value = 1 / row.ratio if row.lower_is_better else row.ratio
        axes.barh(place, value, color=_COLOURS[row.verdict], height=0.6)
        axes.text(value + 0.02, place, f"{value:.2f}", va="center", fontsize=8)
        if row.floor is not None:
            floor = 1 / row.floor if row.lower_is_better else row.floor
            axes.plot([floor, floor], [place - 0.4, place + 0.4], color="black", linewidth=1.5)
    axes.axvline(1, color="grey", linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(shown)), [f"{row.title} / {row.against}" for row in shown], fontsize=8)
    axes.set_xlabel("broker relative to the other side (longer is better, black mark: floor)", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)
