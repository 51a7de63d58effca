"""Options as rows of a table in Markdown: what every page about settings has in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.base.options import Option, format_value

Cells = Callable[[Option], tuple[str, ...]]


def table(what: str, options: Iterable[Option], columns: tuple[str, ...] = (), cells: Cells = lambda _: ()) -> str:
    """Sorted by name. `cells` has the text of the `columns` between what an option takes and what it means."""
    titles = (what, "Type", "Default", "Valid", *columns, "Meaning")
    rows = [_row(titles), f"|{'---|' * len(titles)}"]
    rows += [
        _row((*_basics(option), *cells(option), _meaning(option))) for option in sorted(options, key=lambda o: o.name)
    ]
    return "\n".join(rows) + "\n"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _basics(option: Option) -> tuple[str, ...]:
    text = format_value(option.default)
    default = "unset" if text is None else f"`{text}`" if text else "empty"
    valid = str(option.valid).replace("|", "\\|") if option.valid is not None else ""
    return f"`{option.name}`", option.type.name.lower(), default, valid


def _meaning(option: Option) -> str:
    return option.doc + (f" Deprecated: use {option.deprecated}." if option.deprecated else "")
