"""The file behind the embedded store: what is refused, what a session leaves, and what outlives the process."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ottla.metadata.node_file import NodeFile
from ottla.metadata.store import (
    PERSISTENT,
    BadVersionError,
    Check,
    Create,
    CreateSequential,
    Delete,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Set,
    StoreError,
)

SESSION, OTHER = 7, 8


@pytest.fixture
def file(tmp_path: Path) -> Iterator[NodeFile]:
    with closing(NodeFile(tmp_path / "m.db")) as opened:
        opened.commit([Create("/a", b"data"), Create("/a/b")], SESSION)
        yield opened


@pytest.mark.parametrize(
    ("operation", "kind", "path"),
    [
        (Create("/a"), NodeExistsError, "/a"),
        (Create("/none/child"), NoNodeError, "/none"),
        (CreateSequential("/none/n_"), NoNodeError, "/none"),
        (Set("/none", b""), NoNodeError, "/none"),
        (Set("/a", b"", version=1), BadVersionError, "/a"),
        (Delete("/none"), NoNodeError, "/none"),
        (Delete("/a/b", version=1), BadVersionError, "/a/b"),
        (Delete("/a"), NotEmptyError, "/a"),
        (Check("/none", 0), NoNodeError, "/none"),
        (Check("/a", 1), BadVersionError, "/a"),
    ],
)
def test_what_is_refused_leaves_nothing_of_its_commit(
    file: NodeFile, operation: Operation, kind: type[StoreError], path: str
) -> None:
    before = file.tree("")
    with pytest.raises(kind) as refused:
        file.commit([Create("/first"), operation], SESSION)
    assert refused.value.path == path
    assert file.tree("") == before
    assert file.commit([Create("/first")], SESSION) == [("/first", 0)], "the next commit is a new one"


def test_nodes_know_their_commits_and_their_owner(file: NodeFile) -> None:
    made = file.get("/a")
    assert made == Node(b"data", 0, 1, 1, PERSISTENT)
    assert file.commit([Set("/a", b"more"), Create("/mine", b"m", ephemeral=True)], SESSION) == [
        ("/a", 1),
        ("/mine", 0),
    ]
    assert file.get("/a") == Node(b"more", 1, 1, 2, PERSISTENT)
    assert file.get("/mine") == Node(b"m", 0, 2, 2, SESSION)
    assert file.get("/none") is None


def test_each_operation_says_what_became_of_its_node(file: NodeFile) -> None:
    done = file.commit(
        [
            Check("/a", 0),
            Set("/a", b"1", version=0),
            Check("/a", 1),
            Set("/a", b"2"),
            CreateSequential("/a/n_", b"s"),
            Delete("/a/n_0000000000"),
            Delete("/a/b", version=0),
            Delete("/a"),
        ],
        SESSION,
    )
    assert done == [
        ("/a", 0),
        ("/a", 1),
        ("/a", 1),
        ("/a", 2),
        ("/a/n_0000000000", 0),
        ("/a/n_0000000000", -1),
        ("/a/b", -1),
        ("/a", -1),
    ]
    assert file.tree("") == {}
    file.commit([Create("/a", b"anew")], SESSION)
    assert file.get("/a") == Node(b"anew", 0, 3, 3, PERSISTENT), "another node than the one of that name before"


def test_a_tree_holds_a_node_and_what_is_below_it(file: NodeFile) -> None:
    file.commit([Create(path) for path in ("/a-", "/a0", "/a/c", "/a/b/d", "/b")], SESSION)
    assert sorted(file.tree("/a")) == ["/a", "/a/b", "/a/b/d", "/a/c"]
    assert file.children("/a") == ["b", "c"]
    assert file.tree("/none") == {} and file.children("/none") == []


def test_numbers_in_names_grow_with_every_child_of_a_parent(file: NodeFile) -> None:
    made = file.commit([CreateSequential("/a/n_"), CreateSequential("/a/m_"), CreateSequential("/a/b/n_")], SESSION)
    assert [path for path, _ in made] == ["/a/n_0000000000", "/a/m_0000000001", "/a/b/n_0000000000"]
    file.end_session(SESSION)
    assert file.get("/a/n_0000000000") is not None, "they belong to nobody"


def test_a_session_takes_its_own_nodes_along_and_no_others(file: NodeFile) -> None:
    file.commit([Create("/z", ephemeral=True), Create("/y", ephemeral=True)], SESSION)
    file.commit([Create("/x", ephemeral=True)], OTHER)
    assert file.end_session(SESSION) == ["/y", "/z"]
    assert sorted(file.tree("")) == ["/a", "/a/b", "/x"]
    assert file.end_session(SESSION) == []


def test_what_outlives_the_process(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with closing(NodeFile(path)) as first:
        sessions = [first.begin_session(), first.begin_session()]
        first.commit([Create("/kept", b"k"), CreateSequential("/kept/n_"), Create("/gone", ephemeral=True)], SESSION)
    with closing(NodeFile(path)) as second:
        assert sorted(second.tree("")) == ["/kept", "/kept/n_0000000000"]
        second.commit([Create("/new"), CreateSequential("/kept/n_")], SESSION)
        new = second.get("/new")
        assert new is not None and new.created_id == 2
        assert second.children("/kept") == ["n_0000000000", "n_0000000001"]
        assert [*sessions, second.begin_session()] == [1, 2, 3], "the number of a session is not used again"


def test_a_file_from_before_nodes_knew_their_last_commit(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with closing(NodeFile(path)) as file:
        file.commit([Create("/a", b"data")], SESSION)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE node DROP COLUMN modified_id")
    with closing(NodeFile(path)) as file:
        assert file.get("/a") == Node(b"data", 0, 1, 0, PERSISTENT)
        file.commit([Set("/a", b"new")], SESSION)
        assert file.get("/a") == Node(b"new", 1, 1, 2, PERSISTENT)
