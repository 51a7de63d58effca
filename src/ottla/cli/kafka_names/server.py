"""kafka-server-start.sh and kafka-server-stop.sh: a broker in the foreground or, with -daemon, behind; and its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ottla.cli.failures import FAILED, UsageError

START, STOP = "kafka-server-start.sh", "kafka-server-stop.sh"
_USAGE = f"USAGE: ./{START} [-daemon] server.properties [--override property=value]*"
_LOG_FILE = "kafkaServer.out"
_MODULE = "ottla.cli.kafka_names.scripts"


def main(arguments: list[str], kafka: str) -> int:
    return _stop() if kafka == STOP else _start(arguments)


def _start(arguments: list[str]) -> int:
    behind = arguments[:1] == ["-daemon"]
    arguments = arguments[behind:]
    if arguments[:1] == ["-name"]:  # of the process, in Kafka's log files
        arguments = arguments[2:]
    if not arguments:
        print(_USAGE, file=sys.stderr)
        return FAILED
    if behind:
        return _start_behind(arguments)
    from ottla.cli.start import main as start

    return start(arguments)


def _start_behind(arguments: list[str]) -> int:
    """What it prints goes to a file in LOG_DIR, or in ./logs."""
    directory = Path(os.environ.get("LOG_DIR", "logs"))
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / _LOG_FILE).open("ab") as output:
        subprocess.Popen(
            [sys.executable, "-m", _MODULE, START, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return 0


def _stop() -> int:
    """All brokers of this machine that were started by these scripts, as Kafka's own does; SIGNAL names another end."""
    name = os.environ.get("SIGNAL", "TERM").removeprefix("SIG")
    if f"SIG{name}" not in signal.Signals.__members__:
        raise UsageError(f"SIGNAL {name!r} is no signal")
    found = list(_running())
    for process_id in found:
        os.kill(process_id, signal.Signals[f"SIG{name}"])
    if not found:
        print("No kafka server to stop")
        return FAILED
    return 0


def _running() -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
            is_own = path.stat().st_uid == os.getuid()
        except OSError:
            continue  # it has ended, or is none of our business
        ours = [part.encode() for part in (sys.executable, "-m", _MODULE, START)]
        if is_own and words[: len(ours)] == ours:
            yield int(path.parent.name)
