"""The reset of a group's committed offsets: what it would change, partition by partition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kstore.clients.core.consumer.offset_epoch import encode_known, of_other_topics
from kstore.console.cluster.admin import ConsoleAdmin
from kstore.types import OffsetAndMetadata, TopicPartition

__all__ = ["WAYS", "Move", "offset_of", "plan"]

WAYS = {
    "earliest": "to the start",
    "latest": "to the end",
    "offset": "to an offset",
    "shift": "by a number of records",
    "time": "to a time",
}
"""The ways to choose where a group continues; all except the first two need a number."""


class Move(NamedTuple):
    """A partition's committed offset (None: none), the new one, and the log's start and end; and
    the partition epoch (KIP-232), which distinguishes topics of the same name; -1: unknown.
    """

    partition: TopicPartition
    old: int | None
    new: int
    start: int
    end: int
    life: int


async def plan(
    admin: ConsoleAdmin, group: str, topic: str, way: str, number: int | None
) -> list[Move]:
    """The plan of a reset: for one topic, or ("") for all topics with committed offsets of the
    group.

    The new offsets are within the log. Raises ValueError for a missing argument.
    """
    if way not in WAYS:
        raise ValueError(f"{way!r} is not one of {', '.join(WAYS)}")
    if number is None and way not in {"earliest", "latest"}:
        raise ValueError(f"{way} needs a value")
    rows = await admin.list_group_offsets(group)
    committed = {tp: row.offset for tp, row in rows.items()}
    partitions = sorted(tp for tp in committed if topic in {"", tp.topic})
    if topic:
        (found,) = await admin.describe_topics([topic])
        partitions = [TopicPartition(topic, row.partition) for row in found.partitions]
    if not partitions:
        raise ValueError(f"group {group!r} has committed no offsets: choose a topic")
    lives: dict[TopicPartition, int] = {}
    starts = await _offsets(admin, partitions, "earliest", lives)
    ends = await _offsets(admin, partitions, "latest", lives)
    wanted: Mapping[TopicPartition, int]
    if way == "earliest":
        wanted = starts
    elif way == "latest":
        wanted = ends
    elif way == "time":
        times = await _offsets(admin, partitions, number or 0, lives)
        wanted = {tp: at if at >= 0 else ends[tp] for tp, at in times.items()}
    elif way == "offset":
        wanted = dict.fromkeys(partitions, number or 0)
    else:
        partitions = [tp for tp in partitions if tp in committed]
        _refuse_other_lives(rows, lives)
        wanted = {tp: committed[tp] + (number or 0) for tp in partitions}
    return [
        Move(
            tp,
            committed.get(tp),
            min(max(wanted[tp], starts[tp]), ends[tp]),
            starts[tp],
            ends[tp],
            lives[tp],
        )
        for tp in partitions
    ]


def _refuse_other_lives(
    committed: Mapping[TopicPartition, OffsetAndMetadata], lives: Mapping[TopicPartition, int]
) -> None:
    """Raise ValueError for committed offsets that belong to an earlier topic of the same name
    (KIP-232).
    """
    others = sorted(of_other_topics(committed, lives))
    if others:
        names = ", ".join(f"{tp.topic}-{tp.partition}" for tp in others)
        raise ValueError(
            f"The offsets committed for {names} belong to an earlier topic of that "
            "name. Choose another way."
        )


def offset_of(offset: int, life: int) -> OffsetAndMetadata:
    """The offset to commit for a move: refused if its topic was deleted since it was planned."""
    return OffsetAndMetadata(offset, offset_epoch=encode_known(life, -1))


async def _offsets(
    admin: ConsoleAdmin,
    partitions: list[TopicPartition],
    spec: str | int,
    lives: dict[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Look up offsets; ``lives`` keeps the oldest partition epochs."""
    found = await admin.list_offsets(dict.fromkeys(partitions, spec))
    for tp, row in found.items():
        lives[tp] = min(lives.get(tp, row.partition_epoch), row.partition_epoch)
    return {tp: row.offset for tp, row in found.items()}
