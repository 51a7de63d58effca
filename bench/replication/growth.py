"""What partitions cost that nobody writes to: three brokers with few of them, and with many."""

from __future__ import annotations

import shutil
import subprocess
import time
from dataclasses import dataclass

from bench.replication.clusters import Cluster

IDLE_S = 12
_SETTLING_S = 7
"""Until what was new has been written down, which is done every five seconds."""


@dataclass
class Idle:
    cpu_percent: float
    """Of a core, of all brokers together."""
    fetches_per_s: float | None
    """None where `ss` is not there to tell."""


def idle_cost(cluster: Cluster) -> Idle:
    time.sleep(_SETTLING_S)
    cpu_s, sent, begun_s = cluster.cpu_s(), _requests_between(cluster), time.monotonic()
    time.sleep(IDLE_S)
    took_s = time.monotonic() - begun_s
    sent_later = _requests_between(cluster)
    rate = None if sent is None or sent_later is None else (sent_later - sent) / took_s
    return Idle((cluster.cpu_s() - cpu_s) / took_s * 100, rate)


def _requests_between(cluster: Cluster) -> int | None:
    """Segments with data that the brokers have sent to each other as clients: idle, each is a fetch."""
    if shutil.which("ss") is None:
        return None
    to_brokers = " or ".join(f"dport = :{port}" for port in cluster.ports.values())
    shown = subprocess.run(["ss", "-tinHO", f"( {to_brokers} )"], capture_output=True, text=True, check=True).stdout
    words = (word for line in shown.splitlines() for word in line.split())
    return sum(int(word.partition(":")[2]) for word in words if word.startswith("data_segs_out:"))
