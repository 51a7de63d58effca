"""Settings of clients are described once: the types of keywords and the page about them are generated from that."""

from __future__ import annotations

from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

import ottla
from ottla.base.errors import InvalidConfigError
from ottla.base.options import Option, OptionSet, Type
from ottla.client import docs
from ottla.client.aio.processing.parallel import _consumer_settings
from ottla.client.core.admin.options import ADMIN_OPTIONS
from ottla.client.core.consumer.options import CONSUMER_OPTIONS
from ottla.client.core.producer.options import PRODUCER_OPTIONS
from ottla.client.core.settings import merge_settings, parse_settings
from scripts import client_keywords

DOCUMENT = Path(__file__).parents[3] / "docs" / "client-configuration.md"
CLIENTS: list[Any] = [
    pytest.param(ottla.AdminKeywords, ADMIN_OPTIONS, id="admin"),
    pytest.param(ottla.ConsumerKeywords, CONSUMER_OPTIONS, id="consumer"),
    pytest.param(ottla.ProducerKeywords, PRODUCER_OPTIONS, id="producer"),
]


def test_the_keywords_are_up_to_date() -> None:
    assert client_keywords.TARGET.read_text(encoding="utf-8") == client_keywords.render(), "run: make generate"


@pytest.mark.parametrize(("keywords", "options"), CLIENTS)
def test_every_setting_is_a_keyword_and_nothing_else_is(keywords: Any, options: OptionSet) -> None:
    assert {name.replace("_", ".") for name in get_type_hints(keywords)} == set(options)


@pytest.mark.parametrize(("keywords", "options"), CLIENTS)
def test_values_of_the_types_of_keywords_are_taken(keywords: Any, options: OptionSet) -> None:
    for keyword, hint in get_type_hints(keywords).items():
        option = options[keyword.replace("_", ".")]
        for value, expected in samples(hint, option):
            assert parse_settings(options, merge_settings(None, {keyword: value}))[option.name] == expected


def samples(hint: Any, option: Option) -> list[tuple[Any, Any]]:
    """Values of every type that a checker would take, and what becomes of them."""
    if get_origin(hint) is Literal:
        return [(value, str(value)) for value in get_args(hint)]
    if get_origin(hint) is UnionType:
        return [sample for part in get_args(hint) for sample in samples(part, option)]
    if hint is str:
        return [("a,b", ("a", "b"))] if option.type is Type.LIST else [("text", "text")]
    if hint in (int, float):
        return [(option.default, option.default)]
    return {
        bool: [(True, True), (False, False)],
        type(None): [(None, None)],
        list[str]: [(["a", "b"], ("a", "b"))],
        tuple[str, ...]: [(("a", "b"), ("a", "b"))],
    }[hint]


def test_the_page_is_up_to_date() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == docs.render(), "run: make docs"


def test_every_setting_is_on_the_page_and_says_what_it_does() -> None:
    text = docs.render()
    for option in [*ADMIN_OPTIONS.values(), *CONSUMER_OPTIONS.values(), *PRODUCER_OPTIONS.values()]:
        assert f"| `{option.name}` |" in text
        assert option.doc.endswith((".", ")")), option.name


def test_it_writes_where_it_is_told(tmp_path: Path) -> None:
    target = tmp_path / "out.md"
    assert docs.main([str(target)]) == 0
    assert target.read_text(encoding="utf-8") == docs.render()


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({}, "group.id"),
        ({"group.id": "g"}, None),
        ({"group.id": "g", "enable.auto.commit": False}, None),
        ({"group.id": "g", "enable.auto.commit": "false"}, None),
        ({"group.id": "g", "enable.auto.commit": True}, "enable.auto.commit"),
        ({"group.id": "g", "enable.auto.commit": "true"}, "enable.auto.commit"),
    ],
)
def test_who_processes_in_parallel_commits_what_is_processed_and_nothing_else(
    settings: dict[str, object], refused: str | None
) -> None:
    if refused is None:
        made = _consumer_settings(settings)
        assert made["enable.auto.commit"] is False and made["group.id"] == "g"
    else:
        with pytest.raises(InvalidConfigError) as refusal:
            _consumer_settings(settings)
        assert refusal.value.key == refused
