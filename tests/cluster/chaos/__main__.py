"""`python -m tests.cluster.chaos`: plays rows of the table one after the other, and prints it with the results."""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from tests.cluster.chaos import (  # noqa: F401 (they add rows)
    broker_rows,
    cleanup_rows,
    client_rows,
    clock_rows,
    disk_rows,
    mix_rows,
    mixed_rows,
    namespaces,
    network_rows,
    random_faults,
    zookeeper_rows,
)
from tests.cluster.chaos.table import ROWS, as_table, play
from tests.interop.kafka_tools import COMMAND_LIBS, COMMAND_NAMES, KafkaTools, fetch_kafka_libs

_LONG = ("F20", "F21")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--rows", default="", help="ids, separated by commas; all but F20 and F21 if not given")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--faults", type=int, default=60, help="of F21, the random mix without ZooKeeper")
    parser.add_argument("--minutes", type=float, default=60, help="of F20, the random mix")
    parser.add_argument(
        "--network",
        choices=("namespaces", "proxies"),
        help="how links are cut, where the network is the fault; namespaces if they can be made here",
    )
    options = parser.parse_args()
    wanted = [name for name in options.rows.upper().split(",") if name] or [name for name in ROWS if name not in _LONG]
    unknown = [name for name in wanted if name not in ROWS]
    if unknown:
        parser.error(f"there are no rows {', '.join(unknown)}; there are {', '.join(ROWS)}")
    missing = namespaces.why_not()
    if missing and options.network == "namespaces":
        parser.error(missing)
    network = options.network or ("proxies" if missing else "namespaces")
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    random_faults.FAULTS_OF_RUN = options.faults
    mix_rows.MINUTES_OF_RUN = options.minutes
    # Clients that lose a broker say so; that is what this is about.
    logging.disable(logging.CRITICAL)
    directory = Path(tempfile.mkdtemp(prefix="chaos-"))
    because = f" ({missing})" if missing else ""
    print(f"seed {seed}, {len(wanted)} rows, network faults by {network}{because}", flush=True)
    java = _java()
    results = []
    for name in wanted:
        in_namespaces = ROWS[name].is_of_network and network == "namespaces"
        results.append(play(ROWS[name], directory, seed, java=java, in_namespaces=in_namespaces))
        print(f"{name}: {results[-1].verdict}", flush=True)
    print(as_table(results))
    has_failed = any(result.has_failed for result in results)
    if has_failed:
        print(f"seed {seed}; data of what failed are in {directory}", file=sys.stderr)
    else:
        shutil.rmtree(directory)
    return int(has_failed)


def _java() -> KafkaTools | None:
    try:
        return KafkaTools(fetch_kafka_libs(COMMAND_LIBS, str(COMMAND_NAMES)))
    except pytest.skip.Exception as e:
        print(f"without Kafka's Java producer: {e}", flush=True)
        return None


if __name__ == "__main__":
    sys.exit(main())
