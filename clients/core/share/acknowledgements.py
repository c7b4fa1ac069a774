"""Acknowledgements of a share consumer: their types, and the ranges in requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

__all__ = ["GAP", "AcknowledgeType", "AcknowledgementRange", "acknowledge_type", "ranges", "spans"]

GAP = 0
"""An acquired offset without a record: compaction removed it, or it is a transaction marker."""


class AcknowledgeType(IntEnum):
    """How a record is acknowledged, with the protocol's numbers (KIP-932, KIP-1222)."""

    ACCEPT = 1
    """The record was processed."""
    RELEASE = 2
    """The record is delivered again, to any member, up to the limit of deliveries."""
    REJECT = 3
    """The record cannot be processed, and is not delivered again."""
    RENEW = 4
    """The record is still being processed: its acquisition lock is extended."""


class AcknowledgementRange(NamedTuple):
    """Offsets from first to last, both included; one type for all, or one for each."""

    first_offset: int
    last_offset: int
    types: tuple[int, ...]


def acknowledge_type(given: AcknowledgeType | str) -> AcknowledgeType:
    """The type by its name ("accept") or itself. Raises ValueError for anything else."""
    if isinstance(given, AcknowledgeType):
        return given
    if isinstance(given, str) and given.upper() in AcknowledgeType.__members__:
        return AcknowledgeType[given.upper()]
    names = ", ".join(each.name.lower() for each in AcknowledgeType)
    raise ValueError(f"{given!r} is not an acknowledgement: use one of {names}")


def spans(offsets: Mapping[int, object] | set[int]) -> Iterator[tuple[int, int]]:
    """Offsets as (first, last) of each run without a gap, in order."""
    first = last = None
    for offset in sorted(offsets):
        if first is None or last is None:
            first = last = offset
        elif offset == last + 1:
            last = offset
        else:
            yield first, last
            first = last = offset
    if first is not None and last is not None:
        yield first, last


def ranges(types: Mapping[int, int]) -> list[AcknowledgementRange]:
    """Types by offset as the fewest ranges; a run of records with different types lists one type
    for each offset.
    """
    found = []
    for first, last in spans(types):
        own = tuple(int(types[offset]) for offset in range(first, last + 1))
        found.append(AcknowledgementRange(first, last, own[:1] if len(set(own)) == 1 else own))
    return found
