"""What each verb of `ottla groups` does."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.cli.failures import sentence
from ottla.cli.groups.describing import describe
from ottla.cli.groups.kafka_text import listing_lines
from ottla.cli.groups.resetting import chosen_partitions, reset
from ottla.cli.kafka_names.java_errors import java_message, java_name, java_text
from ottla.cli.rows import show_rows
from ottla.cli.session import missing_group, open_admin
from ottla.client.aio.admin.admin import Admin


async def run(options: Namespace) -> None:
    try:
        async with open_admin(options, "ottla-groups", **{"default.api.timeout.ms": str(options.timeout)}) as admin:
            await _run(admin, options)
    except (KafkaError, OSError, ValueError) as e:
        if not options.kafka:
            raise
        # Kafka's tool says so, and ends as if nothing had happened.
        if isinstance(e, OSError):
            why = f"java.io.IOException: Unable to read file {e.filename}"
        else:
            why = java_text(e) if isinstance(e, KafkaError) else str(e)
        print(f"\nError: Executing consumer group command failed due to {why}")


async def _run(admin: Admin, options: Namespace) -> None:
    if options.verb == "list":
        await _list(admin, options)
        return
    if options.all_groups:
        options.group = [listing.group_id for listing in await admin.list_groups()]
    match options.verb:
        case "describe":
            await describe(admin, options)
        case "delete":
            await _delete(admin, options)
        case "reset-offsets":
            await reset(admin, options)
        case "delete-offsets":
            for group in options.group:
                await _delete_offsets(admin, group, options)
        case "remove-members":
            for group in options.group:
                await _remove_members(admin, group, options)


async def _list(admin: Admin, options: Namespace) -> None:
    states = {state.lower() for state in options.states}
    types = {kind.lower() for kind in options.types}
    listings = [
        listing
        for listing in await admin.list_groups()
        if (not states or listing.state.lower() in states) and (not types or listing.type.lower() in types)
    ]
    rows = [(listing.group_id, listing.type.capitalize(), listing.state) for listing in listings]
    if options.output in ("json", "tsv"):
        show_rows(options.output, ["group", "type", "state"], rows)
    elif options.state is None and options.type is None:
        print("".join(f"{row[0]}\n" for row in rows), end="")
    else:
        for line in listing_lines(rows, types=options.type is not None, states=options.state is not None):
            print(line)


async def _delete(admin: Admin, options: Namespace) -> None:
    outcomes = await admin.delete_groups(options.group)
    deleted = [group for group in options.group if group in outcomes.results]
    if options.kafka:
        _tell_deletions_as_kafka(deleted, outcomes.errors)
        return
    if options.output in ("json", "tsv"):
        show_rows(
            options.output,
            ["group", "deleted", "error"],
            [(g, g in deleted, None if g in deleted else sentence(outcomes.errors[g])) for g in options.group],
        )
    else:
        print("".join(f"Deleted group '{group}'.\n" for group in deleted), end="")
    if outcomes.errors:
        raise await explained(admin, outcomes.errors)


async def explained(admin: Admin, errors: Mapping[str, KafkaError]) -> KafkaError:
    """One sentence for all groups: which do not exist, and which still have members, by their names."""
    known = [listing.group_id for listing in await admin.list_groups()]
    texts = []
    for group, error in errors.items():
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            texts.append(missing_group(group, known))
        elif error.code is ErrorCode.NON_EMPTY_GROUP:
            described = (await admin.describe_groups([group])).results
            names = ", ".join(member.member_id for member in described[group].members) if group in described else ""
            texts.append(f"group '{group}' still has members: {names}" if names else error.message)
        else:
            texts.append(error.message)
    return KafkaError("; ".join(texts))


def _tell_deletions_as_kafka(deleted: Sequence[str], errors: Mapping[str, KafkaError]) -> None:
    if not errors:
        print(f"Deletion of requested consumer groups ('{', '.join(deleted)}') was successful.")
        return
    print("\nError: Deletion of some consumer groups failed:")
    for group, error in errors.items():
        cause = f"java.util.concurrent.ExecutionException: {java_text(error)}"
        print(f"* Group '{group}' could not be deleted due to: {cause}")
    if deleted:
        # The quotation marks are Kafka's.
        listed = "'".join(deleted)
        print(f"\nThese consumer groups were deleted successfully: '{listed}', '")


async def _delete_offsets(admin: Admin, group: str, options: Namespace) -> None:
    partitions = await chosen_partitions(admin, options.topic)
    outcomes = await admin.delete_group_offsets(group, partitions)
    errors = outcomes.errors
    if not options.kafka and any(error.code is ErrorCode.GROUP_ID_NOT_FOUND for error in errors.values()):
        raise await explained(admin, {group: next(iter(errors.values()))})
    if not options.kafka:
        rows = [
            (group, *partition, "deleted" if partition not in errors else sentence(errors[partition]))
            for partition in partitions
        ]
        show_rows(options.output, ["group", "topic", "partition", "status"], rows, right=["partition"])
        if errors:
            raise KafkaError(
                f"offsets of group '{group}' could not be deleted: {sentence(next(iter(errors.values())))}"
            )
        return
    codes = {error.code for error in errors.values()}
    if not errors:
        print(f"Request succeed for deleting offsets with topic {', '.join(options.topic)} group {group}")
    elif ErrorCode.GROUP_ID_NOT_FOUND in codes:
        print(f"\nError: '{group}' does not exist.")
    else:
        print("\nError: Encounter some partition level error, see the follow-up details:")
    print(f"\n{'TOPIC':<30} {'PARTITION':<15} {'STATUS':<15}", end="")
    for topic, partition in partitions:
        error = errors.get(TopicPartition(topic, partition))
        status = "Successful" if error is None else f"Error: :{java_name(error.code)}: {java_message(error)}"
        print(f"{topic:<30} {partition:<15} {status:<15}", end="")


async def _remove_members(admin: Admin, group: str, options: Namespace) -> None:
    named = options.member_id or options.instance_id
    described = await admin.describe_groups([group])
    if described.errors:
        raise await explained(admin, described.errors)
    outcomes = await admin.remove_members(group, options.member_id or None, instance_ids=options.instance_id)
    removed = list(outcomes.results)
    if options.output in ("json", "tsv"):
        show_rows(options.output, ["group", "removed"], [(group, name) for name in removed])
    else:
        print("".join(f"Removed {name} from group '{group}'.\n" for name in removed), end="")
        if not removed and not named:
            print(f"Group '{group}' has no members.")
    if outcomes.errors:
        raise KafkaError("; ".join(f"{name}: {sentence(error)}" for name, error in outcomes.errors.items()))
