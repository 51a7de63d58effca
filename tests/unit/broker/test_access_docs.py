"""The page about what requests need is the one that the table gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker.access import NEEDS, check_is_needed, needed_operation
from ottla.broker.access_docs import document
from ottla.broker.authorizer import Operation, ResourceType
from ottla.wire.api_keys import ApiKey

DOCUMENT = Path(__file__).parents[3] / "docs" / "authorization.md"


def test_the_page_is_up_to_date() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document(), "run make docs"


def test_every_need_is_on_the_page() -> None:
    rows = [line for line in document().splitlines() if line.startswith("| ")]
    assert len(rows) - 1 == sum(max(len(needs), 1) for needs in NEEDS.values())


def test_an_api_does_the_first_thing_of_its_row() -> None:
    assert needed_operation(ApiKey.METADATA, ResourceType.TOPIC) is Operation.DESCRIBE
    assert needed_operation(ApiKey.METADATA, ResourceType.CLUSTER) is Operation.CREATE


def test_what_the_table_does_not_name_cannot_be_asked_for() -> None:
    check_is_needed(ApiKey.METADATA, Operation.CREATE, ResourceType.TOPIC)
    with pytest.raises(LookupError, match="no WRITE on TOPIC"):
        check_is_needed(ApiKey.METADATA, Operation.WRITE, ResourceType.TOPIC)
    with pytest.raises(KeyError):
        needed_operation(ApiKey.METADATA, ResourceType.GROUP)
