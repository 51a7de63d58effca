"""The rows of the table, and how they are run and shown."""

from __future__ import annotations

import random
import shutil
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from ottla.base.errors import StartError
from tests.cluster.chaos.cluster import Cluster
from tests.cluster.chaos.load import Figures, Load
from tests.cluster.chaos.namespaces import Namespaces
from tests.cluster.chaos.proxies import Proxies
from tests.interop.kafka_tools import KafkaTools
from tests.zookeeper_process import ZooKeeperProcesses


class NotHereError(Exception):
    """The row needs what this machine does not allow."""


@dataclass
class Scene:
    """What a row plays in. `rng` is the same for the same seed."""

    directory: Path
    seed: int
    rng: random.Random
    short: bool = False
    """Fewer repetitions, for the suite."""
    java: KafkaTools | None = None
    """With Kafka's Java producer beside the writers of librdkafka."""
    note: str = ""
    """What is worth telling of how it went."""
    slow: list[str] = field(default_factory=list)
    """What took longer than it should."""
    figures: Figures | None = None
    namespaces: Namespaces | None = None
    """Where the cluster is, if not on loopback."""
    undo: ExitStack = field(default_factory=ExitStack)
    """What ends all that the row has begun."""

    def times(self, many: int, few: int) -> int:
        return few if self.short else many

    def took(self, what: str, seconds: float, s_max: float) -> None:
        """Notes how long something took; too long is no failure, for the machine may be busy, but is said."""
        self.note += f"{', ' if self.note else ''}{what} {seconds:.1f} s"
        if seconds > s_max:
            self.slow.append(f"{what} {seconds:.1f} s, not {s_max:.0f} s")

    def cluster(
        self,
        *,
        begun: bool = True,
        zookeeper: ZooKeeperProcesses | None = None,
        has_client_links: bool = False,
        **settings: str,
    ) -> Cluster:
        """`settings` have underscores for dots."""
        given = {name.replace("_", "."): value for name, value in settings.items()}
        links = self.namespaces or Proxies(zookeeper, has_client_links=has_client_links)
        cluster = Cluster(self.directory / "cluster", given, zookeeper, links=links)
        self.undo.callback(cluster.end)
        self.undo.callback(self._keep_logs, cluster)
        if begun:
            cluster.begin()
        return cluster

    def _keep_logs(self, cluster: Cluster) -> None:
        for broker_id, broker in cluster.brokers.items():
            (self.directory / f"broker-{broker_id}.log").write_text("\n".join(broker.log_lines))

    def zookeeper(self, nodes: int = 3) -> ZooKeeperProcesses:
        try:
            ensemble = self._new_zookeeper(nodes)
            self.undo.callback(ensemble.kill)
            return ensemble.start()
        except StartError as e:
            raise NotHereError(str(e)) from e

    def _new_zookeeper(self, nodes: int) -> ZooKeeperProcesses:
        directory, namespaces = self.directory / "zookeeper", self.namespaces
        if namespaces is None:
            return ZooKeeperProcesses(directory, nodes=nodes)
        return ZooKeeperProcesses(
            directory,
            given=namespaces.zookeeper_servers()[:nodes],
            prefix=lambda number: namespaces.command(-number),
        )

    def load(
        self, cluster: Cluster, *, transactions: bool = False, is_damaged: bool = False, pause_s: float = 0.0
    ) -> Load:
        load = Load(
            cluster,
            transactions=transactions,
            seed=self.seed,
            is_damaged=is_damaged,
            pause_s=pause_s,
            java=self.java,
        )
        self.figures = load.figures
        return load


@dataclass(frozen=True)
class Row:
    row_id: str
    what: str
    play: Callable[[Scene], None]
    gap_s_max: float | None = None
    """What the longest time without an acknowledgement should not exceed."""
    is_of_network: bool = False
    """The network is what fails, so it can be a real one."""


@dataclass(frozen=True)
class Result:
    row: Row
    verdict: str
    seconds: float
    figures: Figures
    note: str

    @property
    def has_failed(self) -> bool:
        return self.verdict.startswith("FAILED")


ROWS: dict[str, Row] = {}


def row(
    row_id: str, what: str, *, gap_s_max: float | None = None, is_of_network: bool = False
) -> Callable[[Callable[[Scene], None]], None]:
    def add(play: Callable[[Scene], None]) -> None:
        ROWS[row_id] = Row(row_id, what, play, gap_s_max, is_of_network)

    return add


def play(
    row: Row,
    directory: Path,
    seed: int,
    *,
    short: bool = False,
    java: KafkaTools | None = None,
    in_namespaces: bool = False,
) -> Result:
    """Never raises: what went wrong is the verdict. The data of a row that failed are left where they are."""
    (directory / row.row_id).mkdir()
    scene = Scene(directory / row.row_id, seed, random.Random(f"{row.row_id} {seed}"), short, java)
    began_s = time.monotonic()
    try:
        with scene.undo:
            if in_namespaces:
                scene.namespaces = scene.undo.enter_context(Namespaces())
            row.play(scene)
        figures = scene.figures or Figures()
        if row.gap_s_max is not None and figures.longest_gap_s > row.gap_s_max:
            scene.slow.append(f"no acknowledgement for {figures.longest_gap_s:.1f} s, not {row.gap_s_max:.0f} s")
        verdict = f"ok, but slow: {'; '.join(scene.slow)}" if scene.slow else "ok"
        shutil.rmtree(scene.directory, ignore_errors=True)
    except NotHereError as e:
        verdict = f"not run: {e}"
    except Exception as e:
        where = traceback.extract_tb(e.__traceback__)[-1]
        (scene.directory / "failure.txt").write_text("".join(traceback.format_exception(e)))
        reason = (str(e) or type(e).__name__).splitlines()[0][:300]
        verdict = f"FAILED: {reason} ({Path(where.filename).name}:{where.lineno})"
    note = "; ".join(filter(None, ("in namespaces" if in_namespaces else "", scene.note)))
    return Result(row, verdict, time.monotonic() - began_s, scene.figures or Figures(), note)


def as_table(results: list[Result]) -> str:
    titles = ("records", "of Java", "unknown", "gap", "same", "took")
    lines = [f"row  {' '.join(f'{title:>8}' for title in titles)}  what was done; verdict"]
    for result in results:
        figures = result.figures
        note = f" ({result.note})" if result.note else ""
        values: tuple[object, ...] = (
            figures.records,
            figures.records_of_java,
            figures.unknown,
            f"{figures.longest_gap_s:.1f} s",
            figures.batches,
            f"{result.seconds:.0f} s",
        )
        shown = " ".join(f"{value:>8}" for value in values)
        lines.append(f"{result.row.row_id:<4} {shown}  {result.row.what}; {result.verdict}{note}")
    return "\n".join(lines)
