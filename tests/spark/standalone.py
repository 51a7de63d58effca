"""A standalone Spark cluster for tests: a master and two workers, from the jars of the installed PySpark."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.ports import free_port

START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 30
_REGISTERED = re.compile(r"Registering worker")


class StandaloneCluster:
    """`spark-class` runs each part as a process of its own; all of them are stopped by their ids."""

    def __init__(self, directory: Path, workers: int = 2) -> None:
        self._directory = directory
        self._workers = workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self._port = 0

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._port = free_port()
        self._run("master", "master.Master", "--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0")
        for number in range(self._workers):
            name = f"worker-{number}"
            work = self._directory / name
            options = ("--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g")
            self._run(name, "worker.Worker", *options, "--work-dir", str(work), self.master)
        try:
            self._wait_for_workers()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_TIMEOUT_S)
        self._processes.clear()

    def _run(self, name: str, main_class: str, *arguments: str) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        with (self._directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{main_class}", *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    "SPARK_HOME": str(home),
                    "PYSPARK_PYTHON": sys.executable,
                    "SPARK_NO_DAEMONIZE": "1",
                },
                start_new_session=True,
            )
        self._processes.append(process)

    def _wait_for_workers(self) -> None:
        log = self._directory / "master.log"
        deadline = time.monotonic() + START_TIMEOUT_S
        while len(_REGISTERED.findall(log.read_text(errors="replace"))) < self._workers:
            if time.monotonic() > deadline or any(process.poll() is not None for process in self._processes):
                raise RuntimeError(f"the cluster did not start:\n{log.read_text(errors='replace')}")
            time.sleep(0.1)
