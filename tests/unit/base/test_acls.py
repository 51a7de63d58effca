"""The words of access rules have the numbers that another client knows them by."""

from __future__ import annotations

from enum import IntEnum

import pytest
from kafka.admin import ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourceType

from ottla.base.acls import AclOperation, AclPattern, AclPermission, AclResourceType


@pytest.mark.parametrize(
    ("ours", "theirs", "only_ours"),
    [
        (AclOperation, ACLOperation, {"UNKNOWN"}),
        (AclPermission, ACLPermissionType, {"UNKNOWN"}),
        (AclPattern, ACLResourcePatternType, {"UNKNOWN"}),
        (AclResourceType, ResourceType, {"UNKNOWN"}),
    ],
)
def test_numbers(ours: type[IntEnum], theirs: type[IntEnum], only_ours: set[str]) -> None:
    # By their members, because two words with one number would be one word when an enumeration is walked through.
    mine = {name: word.value for name, word in ours.__members__.items()}
    others = {name: word.value for name, word in theirs.__members__.items()}
    assert mine.keys() - others.keys() <= only_ours
    assert {name: mine[name] for name in mine.keys() & others} == {name: others[name] for name in mine.keys() & others}
    assert ours["UNKNOWN"] == 0
