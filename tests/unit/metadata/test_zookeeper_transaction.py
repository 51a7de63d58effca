"""Commits as requests to ZooKeeper, and what its answers mean, without one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.protocol import serialization
from kazoo.security import OPEN_ACL_UNSAFE

from ottla.metadata.store import (
    BadVersionError,
    Check,
    Committed,
    Create,
    CreateSequential,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Set,
    StoreError,
    StoreFailedError,
)
from ottla.metadata.zookeeper.transaction import read_results, transaction

EVERYTHING: list[Operation] = [
    Create("/a", b"data"),
    Create("/b", ephemeral=True),
    CreateSequential("/n_", b"s"),
    CreateSequential("/m_"),
    Set("/a", b"", 4),
    Delete("/a", 5),
    Check("/a", 6),
]


def test_a_commit_is_one_transaction_below_the_path_of_the_cluster() -> None:
    acls = {path: [path, *OPEN_ACL_UNSAFE] for path in ("/a", "/b", "/n_", "/m_")}
    request = transaction(KazooClient(), EVERYTHING, lambda path: "/c" + path, acls.__getitem__)
    assert request.operations == [
        serialization.Create("/c/a", b"data", acls["/a"], 0),
        serialization.Create("/c/b", None, acls["/b"], 1),
        serialization.Create("/c/n_", b"s", acls["/n_"], 2),
        serialization.Create("/c/m_", None, acls["/m_"], 2),
        serialization.SetData("/c/a", b"", 4),
        serialization.Delete("/c/a", 5),
        serialization.CheckVersion("/c/a", 6),
    ]


def test_what_has_come_of_it_is_told_without_the_path_of_the_cluster() -> None:
    results: list[Any] = ["/c/a", "/c/b", "/c/n_0000000007", "/c/m_0000000008", SimpleNamespace(version=5), True, True]
    assert read_results(EVERYTHING, results, len("/c")) == [
        Committed("/a", 0),
        Committed("/b", 0),
        Committed("/n_0000000007", 0),
        Committed("/m_0000000008", 0),
        Committed("/a", 5),
        Committed("/a", -1),
        Committed("/a", 6),
    ]
    assert read_results([], [], 0) == []


@pytest.mark.parametrize(
    ("operation", "problem", "kind", "path", "words"),
    [
        (Create("/a/b"), exceptions.NodeExistsError(), NodeExistsError, "/a/b", "exists already"),
        (Create("/a/b"), exceptions.NoNodeError(), NoNodeError, "/a", "no such node"),
        (CreateSequential("/a/n_"), exceptions.NoNodeError(), NoNodeError, "/a", "no such node"),
        (Set("/a/b", b""), exceptions.NoNodeError(), NoNodeError, "/a/b", "no such node"),
        (Delete("/a/b"), exceptions.NotEmptyError(), NotEmptyError, "/a/b", "has children"),
        (Check("/a/b", 1), exceptions.BadVersionError(), BadVersionError, "/a/b", "changed meanwhile"),
        (Set("/a/b", b""), exceptions.NoAuthError(), StoreError, "/a/b", "access list"),
        (CreateSequential("/a/n_"), exceptions.InvalidACLError(), StoreError, "/a/n_", "refused: InvalidACLError"),
    ],
)
@pytest.mark.parametrize("others", [exceptions.RolledBackError(), exceptions.RuntimeInconsistency()], ids=repr)
def test_who_stood_in_the_way_is_named(
    operation: Operation, problem: Exception, kind: type[StoreError], path: str, words: str, others: Exception
) -> None:
    with pytest.raises(StoreError, match=words) as refused:
        read_results([Create("/x"), operation, Create("/y")], [others, problem, others], 0)
    assert (type(refused.value), refused.value.path) == (kind, path)


@pytest.mark.parametrize("result", [exceptions.RolledBackError(), exceptions.RuntimeInconsistency()])
def test_a_refusal_without_a_reason_is_none_of_the_nodes(result: Exception) -> None:
    with pytest.raises(StoreFailedError, match="did not say why"):
        read_results([Create("/x"), Create("/y")], ["/x", result], 0)
