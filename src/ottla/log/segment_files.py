"""The files of a segment by their names: the first offset it may hold, and a suffix for each kind."""

from __future__ import annotations

from pathlib import Path

from ottla.log.file import file_names

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"


def offsets_of_files(directory: Path, suffix: str) -> set[int]:
    """The offsets in the names of those files of a partition that have this suffix."""
    stems = [name[: -len(suffix)] for name in file_names(directory) if name.endswith(suffix)]
    return {int(stem) for stem in stems if stem.isdigit()}


def segment_path(directory: Path, base_offset: int, suffix: str) -> Path:
    return directory / f"{base_offset:020d}{suffix}"
