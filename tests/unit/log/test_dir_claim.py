"""What a log directory says about its owner, and when that is written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ottla.log.dir_claim import META_PROPERTIES, DirOwner, lock_directory, read_owner, take_ownership

CLUSTER = "zP1DjmB8RBuXMkn2O1MImg"


@pytest.mark.parametrize(
    ("text", "cluster_id"),
    [
        (f"# by hand\nbroker.id=1\ncluster.id={CLUSTER}\n", CLUSTER),
        (f"# by hand\nbroker.id=1\ncluster.id={CLUSTER}\n", None),
        ("# by hand\nbroker.id=1\n", None),
    ],
)
def test_what_says_all_there_is_to_say_is_left_alone(tmp_path: Path, text: str, cluster_id: str | None) -> None:
    (tmp_path / META_PROPERTIES).write_text(text)
    take_ownership(tmp_path, 1, cluster_id)
    assert (tmp_path / META_PROPERTIES).read_text() == text


@pytest.mark.parametrize("text", ["", "broker.id=1\n", f"cluster.id={CLUSTER}\n"])
def test_what_is_missing_is_written(tmp_path: Path, text: str) -> None:
    (tmp_path / META_PROPERTIES).write_text(f"made.by=somebody\n{text}")
    take_ownership(tmp_path, 1, CLUSTER)
    assert read_owner(tmp_path) == DirOwner(1, CLUSTER)
    assert "made.by=somebody" in (tmp_path / META_PROPERTIES).read_text().splitlines()


def test_a_directory_is_made_with_those_above_it(tmp_path: Path) -> None:
    directory = tmp_path / "disk" / "ottla" / "log"
    for _ in range(2):
        os.close(lock_directory(directory))
    assert read_owner(directory) == DirOwner(None, None)
