"""Files that are on their way into or out of a partition's directory when the process stops."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ottla.base.errors import CorruptBatchError
from ottla.log.file import LogFile, file_names
from ottla.log.file_walk import iter_file
from ottla.log.segment_files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offsets_of_files,
    segment_path,
)

_TEMPORARY_SUFFIX = ".tmp"


def finish_swaps(directory: Path) -> None:
    """Complete or undo what a compaction or deletion had begun when the process stopped.

    `.swap` files are complete and replace the segments whose offsets they cover; a `.cleaned` file is not, and a
    `.swap` that was made together with it is not to be used either.
    """
    swaps: list[Path] = []
    smallest_cleaned = 2**63
    temporary = (DELETED_SUFFIX, _TEMPORARY_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)
    for path in [directory / name for name in file_names(directory) if name.endswith(temporary)]:
        if path.suffix in (DELETED_SUFFIX, _TEMPORARY_SUFFIX):
            path.unlink()
        elif path.suffix == CLEANED_SUFFIX:
            smallest_cleaned = min(smallest_cleaned, _base_offset(path))
            path.unlink()
        elif path.suffix == SWAP_SUFFIX:
            swaps.append(path)
    usable = []
    for path in swaps:
        if _base_offset(path) >= smallest_cleaned:
            path.unlink()
        else:
            usable.append(path)
    swapped_logs = [path for path in usable if Path(path.stem).suffix == LOG_SUFFIX]
    for path in swapped_logs:
        _remove_replaced(directory, _base_offset(path), _end_of_log_file(path))
    for path in usable:
        path.rename(path.with_name(path.stem))


def _remove_replaced(directory: Path, start: int, end: int) -> None:
    for base_offset in offsets_of_files(directory, LOG_SUFFIX):
        if start <= base_offset < end:
            for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
                segment_path(directory, base_offset, suffix).unlink(missing_ok=True)


def _end_of_log_file(path: Path) -> int:
    """The offset after the last batch of a log file that has no index to help."""
    end = _base_offset(path) + 1
    log = LogFile.open_read_only(path)
    with suppress(CorruptBatchError):
        for _, header in iter_file(log, 0, log.size()):
            end = header.next_offset
    return end


def _base_offset(path: Path) -> int:
    name = path.name.partition(".")[0]
    return int(name) if name.isdigit() else -1
