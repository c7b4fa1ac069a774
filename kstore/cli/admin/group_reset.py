"""``kstore group reset-offsets``: where a group that has stopped is to go on.

Without --execute it only shows what it would do.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from kstore.cli.admin_command import admin_command
from kstore.cli.arguments import parse_datetime_ms, parse_duration_ms, parse_partitions
from kstore.cli.failure import FAILED, fail
from kstore.cli.output import Output
from kstore.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kstore.clients import AdminClient

__all__ = ["register", "reset_offsets"]

EXAMPLE = "kstore group reset-offsets billing --topic orders --by-duration 2h --execute"


def register(app: typer.Typer) -> None:
    """Make it a command of the app."""
    admin_command(app, "reset-offsets", EXAMPLE)(reset_offsets)


def reset_offsets(
    admin: AdminClient,
    out: Output,
    group: Annotated[str, typer.Argument(help="The group's id; it may not exist yet.")],
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC[:PARTITIONS]", help="Which; repeat it."),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All that it has committed offsets of.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the start.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end.")] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="To what is committed (else the end).")
    ] = False,
    to_offset: Annotated[int | None, typer.Option(min=0, help="To this offset.")] = None,
    shift_by: Annotated[
        int | None, typer.Option(help="By so many from what is committed; -N: back.")
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option(metavar="TIME", help="To so long ago: 90s, 2h, P1DT2H.")
    ] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(metavar="MOMENT", help="ISO 8601, UTC where it names no zone; or ms."),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="Do it; by default only show it.")
    ] = False,
) -> None:
    """Reset a group's committed offsets; the group must have no members."""
    ways = {
        "--to-earliest": to_earliest, "--to-latest": to_latest, "--to-current": to_current,
        "--to-offset": to_offset is not None, "--shift-by": shift_by is not None,
        "--by-duration": by_duration is not None, "--to-datetime": to_datetime is not None,
    }  # fmt: skip
    if sum(ways.values()) != 1:
        raise typer.BadParameter(f"give exactly one of {', '.join(ways)}")
    if bool(topic) == all_topics:
        raise typer.BadParameter("give either --topic or --all-topics")
    moment_ms = None
    if to_datetime is not None:
        moment_ms = parse_datetime_ms(to_datetime)
    elif by_duration is not None:
        moment_ms = round(time.time() * 1000) - parse_duration_ms(by_duration)
    _refuse_active(admin, group)
    committed = admin.list_group_offsets(group)
    partitions = _partitions(admin, topic, committed)
    starts = {tp: r.offset for tp, r in admin.list_offsets(_all(partitions, "earliest")).items()}
    ends = {tp: r.offset for tp, r in admin.list_offsets(_all(partitions, "latest")).items()}
    if to_earliest:
        wanted = starts
    elif to_latest:
        wanted = ends
    elif moment_ms is not None:
        times = admin.list_offsets(_all(partitions, moment_ms))
        wanted = {tp: r.offset if r.offset >= 0 else ends[tp] for tp, r in times.items()}
    elif to_offset is not None:
        wanted = dict.fromkeys(partitions, to_offset)
    else:
        wanted = _shifted(partitions, committed, ends, shift_by or 0)
    offsets = {tp: min(max(wanted[tp], starts[tp]), ends[tp]) for tp in partitions}
    _apply(admin, out, group, committed, offsets, execute=execute)


def _all(partitions: list[TopicPartition], spec: str | int) -> dict[TopicPartition, str | int]:
    return dict.fromkeys(partitions, spec)


def _refuse_active(admin: AdminClient, group: str) -> None:
    from kstore.errors import GroupIdNotFoundError

    found = admin.describe_groups([group], raise_errors=False)
    for error in found.errors.values():
        if not isinstance(error, GroupIdNotFoundError):
            raise error
    if group in found and found[group].members:
        count = len(found[group].members)
        sentence = f"group {group!r} has {count} members: stop them before its offsets are reset"
        raise SystemExit(fail(sentence))


def _partitions(
    admin: AdminClient,
    topics: list[str] | None,
    committed: dict[TopicPartition, OffsetAndMetadata],
) -> list[TopicPartition]:
    if topics is None or not topics:
        if not committed:
            raise SystemExit(fail("the group has committed no offsets: give --topic"))
        return sorted(committed)
    found: list[TopicPartition] = []
    for name, indexes in map(parse_partitions, topics):
        if indexes is None:
            (topic,) = admin.describe_topics([name])
            indexes = [row.partition for row in topic.partitions]  # noqa: PLW2901
        found += [TopicPartition(name, index) for index in indexes]
    return sorted(set(found))


def _shifted(
    partitions: list[TopicPartition],
    committed: dict[TopicPartition, OffsetAndMetadata],
    ends: dict[TopicPartition, int],
    by: int,
) -> dict[TopicPartition, int]:
    missing = [f"{tp.topic}:{tp.partition}" for tp in partitions if tp not in committed]
    if missing and by:
        sentence = f"nothing is committed for {', '.join(missing)}, so there is nothing to shift"
        raise SystemExit(fail(sentence))
    return {tp: committed[tp].offset + by if tp in committed else ends[tp] for tp in partitions}


def _apply(
    admin: AdminClient,
    out: Output,
    group: str,
    before: dict[TopicPartition, OffsetAndMetadata],
    offsets: dict[TopicPartition, int],
    *,
    execute: bool,
) -> None:
    errors = {}
    if execute:
        errors = admin.alter_group_offsets(group, offsets, raise_errors=False).errors
    rows = [
        {
            "group": group,
            "topic": tp.topic,
            "partition": tp.partition,
            "old_offset": before[tp].offset if tp in before else None,
            "new_offset": offset,
            "done": execute,
        }
        for tp, offset in offsets.items()
        if tp not in errors
    ]
    out.table(rows, ["group", "topic", "partition", "old_offset", "new_offset", "done"])
    for error in errors.values():
        fail(str(error))
    if errors:
        raise SystemExit(FAILED)
    if not execute and not out.json:
        print("nothing was changed: give --execute to do it")
