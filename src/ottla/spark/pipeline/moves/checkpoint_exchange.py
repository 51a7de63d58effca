"""A flow's checkpoint is set aside and another one put in its place: one that holds nothing but where to go on.

The new one has a planned batch that is not done. Spark runs it first; it is marked as one that holds no records, so the
query makes its state, if it has any, from nothing, and goes on at the offsets of the batch's end.

Two directories cannot be exchanged at once, and without any a flow would begin anew. A note beside the checkpoint
(`<name>.moving`) says that an exchange is under way: nothing runs until it is completed or taken back.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ottla.spark.pipeline.flows.checkpoints import FlowCheckpoint, PlannedBatch
from ottla.spark.pipeline.flows.running import moving_note


class CheckpointExchange:
    def __init__(self, directory: Path, now_ms: int) -> None:
        self._directory = directory
        self._now_ms = now_ms
        self._note = moving_note(directory)
        self._new = directory.with_name(f"{directory.name}.new")

    def take_back(self) -> Path | None:
        """Undoes an exchange that was cut off between its two steps. One that was carried out stays; where its old
        checkpoint is then is returned, and `finish` is to be called when the rest is done."""
        shutil.rmtree(self._new, ignore_errors=True)
        if not self._note.exists():
            return None
        aside = Path(json.loads(self._note.read_text())["aside"])
        if self._directory.exists():
            return aside if aside.exists() else None
        if aside.exists():
            aside.rename(self._directory)
        return None

    def prepare(self, plan: PlannedBatch, topic_ids: Mapping[str, str], conf: Mapping[str, str]) -> None:
        """Writes the new checkpoint, of a new query. `conf` is set anew, where the old one has it."""
        (self._new / "offsets").mkdir(parents=True)
        (self._new / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
        (self._new / "offsets" / "0").write_text(plan._replace(own=self._own_state(plan.own, conf)).text)
        FlowCheckpoint(None, str(self._new)).note_topic_ids(dict(topic_ids))

    def _own_state(self, before: str, conf: Mapping[str, str]) -> str:
        own: dict[str, Any] = json.loads(before)
        own["batchWatermarkMs"] = 0
        own["batchTimestampMs"] = self._now_ms
        kept = own.get("conf", {})
        own["conf"] = {name: conf.get(name, text) for name, text in kept.items()}
        return json.dumps(own)

    def carry_out(self) -> Path:
        """Puts the new one in place; returns where the old one is. `finish` is still to be called."""
        aside = self._free_name()
        written = self._note.with_name(f"{self._note.name}.new")
        written.write_text(json.dumps({"aside": str(aside)}))
        written.replace(self._note)
        self._directory.rename(aside)
        self._new.rename(self._directory)
        return aside

    def finish(self) -> None:
        self._note.unlink(missing_ok=True)

    def _free_name(self) -> Path:
        moment = datetime.fromtimestamp(self._now_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
        stem = f"{self._directory.name}.before-{moment}"
        names: Sequence[str] = [stem, *(f"{stem}-{number}" for number in range(2, 100))]
        return next(path for name in names if not (path := self._directory.with_name(name)).exists())
