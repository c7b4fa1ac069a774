"""``kstore group reset-offsets``: new offsets for a group without members.

Without --execute it only shows them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from kstore.cli import completion
from kstore.cli.admin import share_group
from kstore.cli.admin_command import admin_command
from kstore.cli.arguments import parse_datetime_ms, parse_duration_ms, parse_partitions
from kstore.cli.failure import FAILED, fail
from kstore.cli.output import Output
from kstore.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kstore.clients import AdminClient
    from kstore.clients.admin.offsets import ListedOffset

__all__ = ["register", "reset_offsets"]

EXAMPLE = "kstore group reset-offsets billing --topic orders --by-duration 2h --execute"

MaybeGroup = Annotated[
    str,
    typer.Argument(
        help="The group's id; the group need not exist yet.", autocompletion=completion.groups
    ),
]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", metavar="TOPIC[:PARTITIONS]",
        help="Reset the offsets of this topic, or of some of its partitions; may be repeated.",
        autocompletion=completion.topics,
    ),
]  # fmt: skip
ToCurrent = Annotated[
    bool,
    typer.Option("--to-current", help="Keep the committed offset; without one, reset to the end."),
]
ShiftBy = Annotated[
    int | None,
    typer.Option(help="Move the committed offset forward by this many offsets, or back with -N."),
]
ByDuration = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Reset to the records from this long ago: 90s, 2h, P1DT2H."),
]
ToDatetime = Annotated[
    str | None,
    typer.Option(
        metavar="MOMENT",
        help="Reset to the records from this time on: ISO 8601 (UTC if it has no zone), or "
        "ms since 1970.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    admin_command(app, "reset-offsets", EXAMPLE)(reset_offsets)


def reset_offsets(
    admin: AdminClient,
    out: Output,
    group: MaybeGroup,
    topic: Topics = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Reset all committed offsets.")
    ] = False,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="Reset to the log start offset.")
    ] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Reset to the end.")] = False,
    to_current: ToCurrent = False,
    to_offset: Annotated[int | None, typer.Option(min=0, help="Reset to this offset.")] = None,
    shift_by: ShiftBy = None,
    by_duration: ByDuration = None,
    to_datetime: ToDatetime = None,
    execute: Annotated[
        bool,
        typer.Option(
            "--execute/--dry-run", help="Reset the offsets. By default they are only shown."
        ),
    ] = False,
) -> None:
    """Reset a group's committed offsets, or a share group's start offsets; the group must have no
    members.
    """
    ways = {
        "--to-earliest": to_earliest, "--to-latest": to_latest, "--to-current": to_current,
        "--to-offset": to_offset is not None, "--shift-by": shift_by is not None,
        "--by-duration": by_duration is not None, "--to-datetime": to_datetime is not None,
    }  # fmt: skip
    if sum(ways.values()) != 1:
        raise typer.BadParameter(f"use exactly one of {', '.join(ways)}")
    if bool(topic) == all_topics:
        raise typer.BadParameter("use either --topic or --all-topics")
    moment_ms = None
    if to_datetime is not None:
        moment_ms = parse_datetime_ms(to_datetime)
    elif by_duration is not None:
        moment_ms = round(time.time() * 1000) - parse_duration_ms(by_duration)
    _refuse_active(admin, group)
    shares = share_group.is_share(admin, group)
    committed = (
        share_group.start_offsets(admin, group) if shares else admin.list_group_offsets(group)
    )
    partitions = _partitions(admin, topic, committed)
    found = [admin.list_offsets(_all(partitions, spec)) for spec in ("earliest", "latest")]
    starts, ends = ({tp: row.offset for tp, row in each.items()} for each in found)
    if to_earliest:
        wanted = starts
    elif to_latest:
        wanted = ends
    elif moment_ms is not None:
        times = admin.list_offsets(_all(partitions, moment_ms))
        found.append(times)
        wanted = {tp: r.offset if r.offset >= 0 else ends[tp] for tp, r in times.items()}
    elif to_offset is not None:
        wanted = dict.fromkeys(partitions, to_offset)
    else:
        _refuse_other_lives(partitions, committed, found[0])
        wanted = _shifted(partitions, committed, ends, shift_by or 0)
    offsets = _within(partitions, wanted, found)
    _apply(admin, out, group, committed, offsets, execute=execute, shares=shares)


def _within(
    partitions: list[TopicPartition],
    wanted: dict[TopicPartition, int],
    listed: Sequence[Mapping[TopicPartition, ListedOffset]],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The new offsets, limited to the log's start and end, which are listed first. They have the
    offset epoch of the oldest topic of that name, so the commit is refused if the topic was created
    again meanwhile.
    """
    starts, ends = listed[:2]
    return {
        tp: OffsetAndMetadata(
            min(max(wanted[tp], starts[tp].offset), ends[tp].offset),
            offset_epoch=min((each[tp].offset_epoch for each in listed), key=_age),
        )
        for tp in partitions
    }


def _age(offset_epoch: bytes | None) -> int:
    from kstore.clients.core.consumer.offset_epoch import decode

    return -1 if offset_epoch is None else decode(offset_epoch).partition_epoch


def _refuse_other_lives(
    partitions: list[TopicPartition],
    committed: dict[TopicPartition, OffsetAndMetadata],
    listed: Mapping[TopicPartition, ListedOffset],
) -> None:
    """Offsets committed in an earlier topic of the same name do not count (KIP-232)."""
    from kstore.clients.core.consumer.offset_epoch import of_other_topics

    epochs = {tp: listed[tp].partition_epoch for tp in partitions}
    others = sorted(of_other_topics(committed, epochs))
    if others:
        names = ", ".join(f"{tp.topic}:{tp.partition}" for tp in others)
        sentence = (
            f"the offsets committed for {names} belong to an earlier topic of that "
            "name: use --to-earliest, --to-latest, --to-offset or a time"
        )
        raise SystemExit(fail(sentence))


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
            raise SystemExit(fail("the group has no committed offsets: use --topic"))
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
    offsets: dict[TopicPartition, OffsetAndMetadata],
    *,
    execute: bool,
    shares: bool,
) -> None:
    errors = {}
    if execute and shares:
        errors = share_group.alter_offsets(admin, group, offsets)
    elif execute:
        errors = admin.alter_group_offsets(group, offsets, raise_errors=False).errors
    rows = [
        {
            "group": group,
            "topic": tp.topic,
            "partition": tp.partition,
            "old_offset": before[tp].offset if tp in before else None,
            "new_offset": wanted.offset,
            "done": execute,
        }
        for tp, wanted in offsets.items()
        if tp not in errors
    ]
    out.table(rows, ["group", "topic", "partition", "old_offset", "new_offset", "done"])
    for error in errors.values():
        fail(str(error))
    if errors:
        raise SystemExit(FAILED)
    if not execute and not out.json:
        print("nothing was changed: use --execute to reset the offsets")
