"""Whether a directory keeps its files: what lies in memory or among temporary files is gone after a reboot."""

from __future__ import annotations

from pathlib import Path

_IN_MEMORY = ("tmpfs", "ramfs")
_MOUNTS = Path("/proc/self/mounts")


def why_not_lasting(directory: Path, mounts: str | None = None) -> str | None:
    """The reason to say at the start, or None. `mounts` is what the system says is mounted where."""
    resolved = directory.resolve()
    if _file_system(resolved, _read_mounts() if mounts is None else mounts) in _IN_MEMORY:
        return f"{directory} is in memory, so its data are gone after a reboot; set log.dirs to keep them"
    if resolved.is_relative_to("/tmp"):
        return f"{directory} is for temporary files, so its data may be removed at any time; set log.dirs to keep them"
    return None


def _file_system(directory: Path, mounts: str) -> str | None:
    """The kind of file system the directory is on: that of the longest mount point above it."""
    best, kind = -1, None
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ")
        # Of two mounts on one point the later one is on top.
        if directory.is_relative_to(point) and len(point) >= best:
            best, kind = len(point), fields[2]
    return kind


def _read_mounts() -> str:
    try:
        return _MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
