"""Combines batches of offsets with their delivery states (Kafka's PersisterStateBatchCombiner).

If two batches contain the same offset, the higher delivery count wins, and with equal counts the
higher delivery state. A write may arrive late, but delivery counts never decrease.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from operator import attrgetter

from kstore.broker.state.shares.persisted import NO_OFFSET, StateBatch

__all__ = ["combine"]

_LAST_OFFSET = attrgetter("last_offset")


def combine(
    known: Iterable[StateBatch], added: Iterable[StateBatch], start_offset: int = NO_OFFSET
) -> tuple[StateBatch, ...]:
    """The batches of both, sorted and disjoint, without offsets below ``start_offset``. Adjacent
    batches with equal state and count are joined. ``known`` must be sorted and disjoint.
    """
    batches = list(known)
    for batch in added:
        if batch.first_offset <= batch.last_offset:
            _lay_over(batches, batch)
    if start_offset != NO_OFFSET:
        _cut(batches, start_offset)
    return tuple(batches)


def _lay_over(batches: list[StateBatch], added: StateBatch) -> None:
    begin = end = bisect_left(batches, added.first_offset, key=_LAST_OFFSET)
    while end < len(batches) and batches[end].first_offset <= added.last_offset:
        end += 1
    pieces = _overlaid(batches[begin:end], added)
    # Adjacent batches may now have equal states and counts.
    before, after = max(begin - 1, 0), min(end + 1, len(batches))
    batches[before:after] = _joined([*batches[before:begin], *pieces, *batches[end:after]])


def _overlaid(touched: list[StateBatch], added: StateBatch) -> list[StateBatch]:
    """The pieces of an added batch and of the batches that overlap it."""
    pieces = []
    free = added.first_offset
    for known in touched:
        first = max(known.first_offset, added.first_offset)
        last = min(known.last_offset, added.last_offset)
        if known.first_offset < first:
            pieces.append(known._replace(last_offset=first - 1))
        if free < first:
            pieces.append(added._replace(first_offset=free, last_offset=first - 1))
        wins = max(known, added, key=_rank)
        pieces.append(wins._replace(first_offset=first, last_offset=last))
        if known.last_offset > last:
            pieces.append(known._replace(first_offset=last + 1))
        free = last + 1
    if free <= added.last_offset:
        pieces.append(added._replace(first_offset=free))
    return pieces


def _rank(batch: StateBatch) -> tuple[int, int]:
    return batch.delivery_count, batch.delivery_state


def _joined(batches: list[StateBatch]) -> list[StateBatch]:
    found: list[StateBatch] = []
    for batch in batches:
        last = found[-1] if found else None
        if (
            last is not None
            and last.last_offset + 1 == batch.first_offset
            and _rank(last) == _rank(batch)
        ):
            found[-1] = last._replace(last_offset=batch.last_offset)
        else:
            found.append(batch)
    return found


def _cut(batches: list[StateBatch], start_offset: int) -> None:
    del batches[: bisect_left(batches, start_offset, key=_LAST_OFFSET)]
    if batches and batches[0].first_offset < start_offset:
        batches[0] = batches[0]._replace(first_offset=start_offset)
