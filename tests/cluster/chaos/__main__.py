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
    client_rows,
    disk_rows,
    random_faults,
    zookeeper_rows,
)
from tests.cluster.chaos.table import ROWS, as_table, play
from tests.interop.kafka_tools import COMMAND_LIBS, COMMAND_NAMES, KafkaTools, fetch_kafka_libs


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--rows", default="", help="ids, separated by commas; all but F20 if not given")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--faults", type=int, default=60, help="of F20, the random mix")
    options = parser.parse_args()
    wanted = [name for name in options.rows.upper().split(",") if name] or [name for name in ROWS if name != "F20"]
    unknown = [name for name in wanted if name not in ROWS]
    if unknown:
        parser.error(f"there are no rows {', '.join(unknown)}; there are {', '.join(ROWS)}")
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    random_faults.FAULTS_OF_RUN = options.faults
    # Clients that lose a broker say so; that is what this is about.
    logging.disable(logging.CRITICAL)
    directory = Path(tempfile.mkdtemp(prefix="chaos-"))
    print(f"seed {seed}, {len(wanted)} rows", flush=True)
    java = _java()
    results = []
    for name in wanted:
        results.append(play(ROWS[name], directory, seed, java=java))
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
