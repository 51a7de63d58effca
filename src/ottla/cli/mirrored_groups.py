"""`ottla pipeline groups`: where groups go on reading on the target of a mirror. Spark is not started for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.columns import print_columns
from ottla.cli.failures import UsageError

if TYPE_CHECKING:
    from ottla.spark.mirror.group_offsets import Translation
    from ottla.spark.mirror.settings import Mirror
    from ottla.spark.pipeline.definition import Pipeline

GROUP = Annotated[list[str] | None, typer.Option(help="a group, repeatable; the mirror's own choice if none is named")]
MIRROR = Annotated[str | None, typer.Option(help="the mirror, where the file has several")]
EXECUTE = Annotated[bool, typer.Option("--execute", help="commit the offsets on the target; without, only show them")]
REWIND = Annotated[bool, typer.Option("--rewind", help="also move groups back that are further on the target")]

_COLUMNS = ("GROUP", "TOPIC", "PARTITION", "OFFSET", "TARGET-TOPIC", "TARGET-OFFSET", "CURRENT-OFFSET", "")


def move_groups(
    pipeline: Pipeline, group_ids: list[str] | None, mirror_name: str | None, *, execute: bool, rewind: bool
) -> bool:
    """Shows what becomes of groups, and does it if asked. False if some of them could not be moved."""
    from ottla.spark.mirror.group_offsets import GroupOffsets, Verdict
    from ottla.spark.mirror.group_sync import open_map

    mirror = _choose(pipeline, mirror_name)
    offsets = GroupOffsets(mirror)
    chosen = group_ids or offsets.chosen_groups()
    if not chosen:
        raise UsageError(
            f"mirror {mirror.name} has no groups to translate: name one with --group, or add 'groups' to it"
        )
    reader = open_map(mirror)
    try:
        translations = offsets.translate(reader.read(), chosen, rewind=rewind)
    finally:
        reader.close()
    _show(translations)
    idle = {group_id for group_id in chosen if not any(one.group_id == group_id for one in translations)}
    for group_id in sorted(idle):
        print(f"group {group_id} has committed nothing in the topics that are mirrored")
    if execute:
        moved = offsets.commit(translations)
        print(f"moved: {len(moved)} of {len(translations)} partitions")
    return not idle and not any(one.verdict is Verdict.IS_ACTIVE for one in translations)


def _choose(pipeline: Pipeline, name: str | None) -> Mirror:
    from ottla.spark.pipeline.mirrors import MirrorSink

    sinks = [sink.part for sink in pipeline.model().sinks.values()]
    mirrors = {part.mirror.name: part.mirror for part in sinks if isinstance(part, MirrorSink)}
    if not mirrors:
        raise UsageError("the pipeline has no mirrors")
    if name is None and len(mirrors) > 1:
        raise UsageError(f"say which mirror with --mirror: {', '.join(sorted(mirrors))}")
    if name is not None and name not in mirrors:
        raise UsageError(f"there is no mirror {name!r}; there is {', '.join(sorted(mirrors))}")
    return mirrors[name] if name is not None else next(iter(mirrors.values()))


def _show(translations: list[Translation]) -> None:
    rows = []
    for one in translations:
        current = "-" if one.current_offset is None else str(one.current_offset)
        source = (one.source.topic, str(one.source.partition), str(one.source_offset))
        target = (one.target.topic, str(one.target_offset), current)
        rows.append((one.group_id, *source, *target, one.verdict.value))
    print_columns(_COLUMNS, rows)
