"""A refusal is a reply: for every API and every resource it names, the right error in the right place, and no more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from ottla.broker.access import NEEDS
from ottla.broker.admission import AccessRules
from ottla.broker.handlers import all_handlers
from ottla.broker.table_authorizer import TableAuthorizer
from ottla.testing import EmbeddedBroker
from ottla.wire.api_keys import ApiKey
from tests.access.messages import refusals_in
from tests.access.refusals import CASES, Case, Denied, World
from tests.access.world import EVERYTHING, denial, failure, prepared, refused_client


@dataclass
class Guarded:
    world: World
    authorizer: TableAuthorizer

    def deny(self, denied: Sequence[Denied]) -> None:
        self.authorizer.replace([*EVERYTHING, *map(denial, denied)])


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    authorizer = TableAuthorizer(EVERYTHING)
    with EmbeddedBroker(config={"broker.id": 1}, access=AccessRules(authorizer)) as broker:
        yield Guarded(prepared(broker.port, 1), authorizer)


def test_the_table_of_needs_has_every_api() -> None:
    assert set(NEEDS) == {ApiKey(key) for key in all_handlers()}


def test_every_need_is_refused_in_some_case() -> None:
    refused = {(case.api, operation, kind) for case in CASES for operation, kind, _ in case.denied}
    needed = {(api, need.operation, need.resource_type) for api, needs in NEEDS.items() for need in needs}
    assert refused == needed


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_a_refusal_is_a_reply(guarded: Guarded, case: Case) -> None:
    guarded.deny(case.denied)
    with refused_client(guarded.world) as client:
        problems = "".join(failure(case, guarded.world, client, version) for version in case.versions)
    assert not problems, problems


@pytest.mark.parametrize("case", [case for case in CASES if case.each_is_enough], ids=lambda case: case.title)
def test_where_one_permission_is_enough_the_other_is_not_needed(guarded: Guarded, case: Case) -> None:
    version = max(case.versions)
    for denied in case.denied:
        guarded.deny([denied])
        with refused_client(guarded.world) as client:
            response = client.call(case.request(guarded.world, version), version)
            assert refusals_in(response, guarded.world.names_of_ids) == {}, denied
