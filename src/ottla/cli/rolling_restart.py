"""`ottla cluster restart`: restarts the brokers of `ottla start --brokers` one after the other, while all goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from argparse import Namespace
from pathlib import Path

from ottla.base.errors import KafkaError
from ottla.cli.cluster_status import read_status
from ottla.cli.session import open_admin
from ottla.client.aio.admin.admin import Admin

_POLL_S = 0.1
PidFiles = dict[int, Path]


async def restart(options: Namespace) -> None:
    """Each broker hands over what it leads, is stopped, and has to be in sync again before the next one is."""
    data = Path(options.data)
    timeout_s = options.timeout_s
    pid_files = {
        int(path.parent.name.removeprefix("broker-")): path
        for path in data.glob("broker-*/pid")
        if path.parent.name.removeprefix("broker-").isdecimal()
    }
    if not pid_files:
        raise KafkaError(f"{data} holds no brokers of `ottla start --brokers`")
    async with open_admin(options, "ottla-cluster") as admin:
        await _until_well(admin, pid_files, timeout_s, "before the restart")
        for broker_id, path in sorted(pid_files.items()):
            began_s = time.monotonic()
            await _restart_one(admin, broker_id, path, timeout_s)
            await _until_well(admin, pid_files, timeout_s, f"after the restart of broker {broker_id}")
            print(f"broker {broker_id} was restarted and is in sync, {time.monotonic() - began_s:.1f} s", flush=True)


async def _restart_one(admin: Admin, broker_id: int, path: Path, timeout_s: int) -> None:
    old = int(path.read_text())
    try:
        os.kill(old, signal.SIGTERM)
    except ProcessLookupError:
        raise KafkaError(f"broker {broker_id} is not running (process {old}); is the cluster up?") from None
    deadline_s = time.monotonic() + timeout_s
    while int(path.read_text() or old) == old:
        if time.monotonic() > deadline_s:
            raise KafkaError(
                f"broker {broker_id} was stopped and nobody has started it again; was the cluster started with "
                "--no-restart?"
            )
        await asyncio.sleep(_POLL_S)


async def _until_well(admin: Admin, brokers: PidFiles, timeout_s: int, when: str) -> None:
    """All brokers are there, and every replica is in sync: then one of them can be spared."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            found = await read_status(admin)
        except (KafkaError, OSError) as e:
            missing = f"the brokers cannot be asked: {e}"
        else:
            away = sorted(brokers.keys() - {broker.broker_id for broker in found.brokers if broker.is_alive})
            behind = [one.partition for one in found.under_replicated]
            if not away and not behind:
                return
            missing = (
                f"broker {away[0]} is not there"
                if away
                else f"{len(behind)} partitions lack copies, such as {behind[0]}"
            )
        if time.monotonic() > deadline_s:
            raise KafkaError(f"{when}, {missing}; nothing more is restarted. `ottla cluster status` shows more.")
        await asyncio.sleep(_POLL_S)
