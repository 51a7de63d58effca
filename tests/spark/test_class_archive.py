"""Java's classes in an archive: written by one process, used by the next, and no harm if it cannot be used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pip install 'ottla[spark]'")

from ottla.spark.class_archive import archive_path, options_to_use

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-drivers")]

PATIENCE_S = 300.0
WRITES = """
archive = NewArchive()
session = build_session("writes", master="local[1]", is_short_lived=True, archive_options=archive.options)
print(session.range(3).count())
session.stop()
print(archive.keep())
"""
NEEDS_IT = """
options = f"{options_to_use()} -Xshare:on"
session = build_session("reads", master="local[1]", conf={"spark.driver.extraJavaOptions": options})
print(session.range(3).count())
session.stop()
"""
USES_IT = """
session = build_session("reads", master="local[1]", is_short_lived=True)
print(session.range(3).count())
print("SharedArchiveFile" in session._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
    .getInputArguments().toString())
session.stop()
"""


def run(code: str, cache: Path) -> str:
    imports = (
        "from ottla.spark.class_archive import NewArchive, options_to_use\n"
        "from ottla.spark.sessions import build_session\n"
    )
    kept = {name: text for name, text in os.environ.items() if name != "PYSPARK_SUBMIT_ARGS"}
    done = subprocess.run(
        [sys.executable, "-c", imports + code],
        env={**kept, "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(900)
def test_one_process_writes_it_and_the_next_uses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert options_to_use() == ""
    assert run(WRITES, tmp_path) == f"3\n{archive_path()}\n"
    assert list(archive_path().parent.iterdir()) == [archive_path()]
    assert run(NEEDS_IT, tmp_path) == "3\n", "Java would not start without it"
    archive_path().unlink()
    archive_path().write_bytes(b"not an archive")
    assert run(USES_IT, tmp_path) == "3\nTrue\n", "Java does not mind, and says nothing"
