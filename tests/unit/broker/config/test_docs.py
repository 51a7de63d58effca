"""The documentation of settings is generated, complete and up to date."""

from __future__ import annotations

from pathlib import Path

from ottla.broker.config.broker_config import BROKER_OPTIONS
from ottla.broker.config.docs import main, render
from ottla.broker.config.topics import TOPIC_OPTIONS

DOCUMENT = Path(__file__).parents[4] / "docs" / "configuration.md"


def test_the_file_is_up_to_date() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == render(), "run: python -m ottla.broker.config.docs"


def test_every_setting_is_in_it_and_says_what_it_does() -> None:
    text = render()
    for option in [*BROKER_OPTIONS.values(), *TOPIC_OPTIONS.values()]:
        assert f"| `{option.name}` |" in text
        assert option.doc.endswith((".", ")")), option.name


def test_every_row_has_the_columns_of_its_table() -> None:
    for line in render().splitlines():
        if line.startswith("| "):
            assert line.replace("\\|", "").count("|") in (6, 8), line


def test_it_writes_where_it_is_told(tmp_path: Path) -> None:
    target = tmp_path / "out.md"
    assert main([str(target)]) == 0
    assert target.read_text(encoding="utf-8") == render()
