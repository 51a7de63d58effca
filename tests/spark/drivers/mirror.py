"""Runs a pipeline of mirrors with accidents: `python -m tests.spark.drivers.mirror FILE`, or `FILE --for-ever`."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

from ottla.spark.pipeline import Pipeline, mirrors
from ottla.spark.sessions import build_session
from tests.spark.drivers.faults import place
from tests.spark.drivers.mirror_faults import FaultyMirror


def main(path: str, *flags: str) -> None:
    spark = build_session("mirror", master="local[2]")
    assert spark.sparkContext._jvm is not None
    place("jvm.pid").write_text(str(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()))
    mirrors.MirrorDataSource = FaultyMirror  # type: ignore[misc]
    Pipeline.from_file(Path(path)).run(spark, once=not flags)


try:
    main(*sys.argv[1:])
except Exception:
    # Threads that hold a batch back for ever are left behind with their dead JVM.
    traceback.print_exc()
    os._exit(1)
