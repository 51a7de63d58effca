"""Directories that do not keep their files are known by where they are and what they are on."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker.lasting import why_not_lasting

MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
tmpfs /run tmpfs rw 0 0
/dev/sdb1 /run/disk ext4 rw 0 0
tmpfs /mnt/a\\040b tmpfs rw 0 0
/dev/sdc1 /twice ext4 rw 0 0
tmpfs /twice tmpfs rw 0 0
nonsense
"""


@pytest.mark.parametrize(
    ("directory", "words"),
    [
        ("/tmp/ottla-logs", "temporary files"),
        ("/tmp", "temporary files"),
        ("/run/ottla", "in memory"),
        ("/mnt/a b/data", "in memory"),
        ("/twice/data", "in memory"),
    ],
)
def test_what_does_not_last(directory: str, words: str) -> None:
    reason = why_not_lasting(Path(directory), MOUNTS)
    assert reason is not None and words in reason and directory in reason and "set log.dirs" in reason


@pytest.mark.parametrize("directory", ["/var/lib/ottla", "/run/disk/data", "/running", "/tmpfiles"])
def test_what_lasts(directory: str) -> None:
    assert why_not_lasting(Path(directory), MOUNTS) is None
    assert why_not_lasting(Path(directory), "") is None
