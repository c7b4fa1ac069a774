"""Chooses the offsets that a micro-batch or a task reads: rate limits, splits and the order of
expansions. Pure: it sends no requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise

from kstore.clients.core.group.expansion_gate import PriorEpoch
from kstore.pipeline.ranges import OffsetRange
from kstore.types import TopicPartition

__all__ = ["Thresholds", "is_held_back", "rate_limited", "split"]

Thresholds = Mapping[PriorEpoch, int]
"""The end of the last leader epochs of prior partitions: the offset after their last record."""


def rate_limited(
    begin: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], limit: int
) -> dict[TopicPartition, int]:
    """New ends with about ``limit`` offsets in total, each partition's share by its size; every
    partition with new records advances by at least one.
    """
    sizes = {tp: last - begin[tp] for tp, last in end.items() if last > begin[tp]}
    total = sum(sizes.values())
    if total <= limit:
        return dict(end)
    shares = {tp: max(limit * size // total, 1) for tp, size in sizes.items()}
    return {tp: begin[tp] + shares[tp] if tp in shares else last for tp, last in end.items()}


def split(
    ranges: Iterable[OffsetRange], min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """The ranges that are not empty, split into about ``min_partitions`` tasks by size, none with
    more than ``max_records`` offsets.
    """
    kept = [each for each in ranges if each.size > 0]
    if max_records is not None:
        kept = [part for each in kept for part in _cut(each, -(-each.size // max_records))]
    if min_partitions is None or len(kept) >= min_partitions:
        return kept
    total = sum(each.size for each in kept)
    if total == 0:
        return kept
    whole = {id(each) for each in kept if _parts(each.size, total, min_partitions) == 1}
    left = total - sum(each.size for each in kept if id(each) in whole)
    wanted = max(min_partitions - len(whole), 1)
    return [
        part
        for each in kept
        for part in _cut(each, 1 if id(each) in whole else _parts(each.size, left, wanted))
    ]


def _parts(size: int, total: int, wanted: int) -> int:
    return max(int(size / total * wanted + 0.5), 1)


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    """So many ranges of nearly the same size; only the first one has an epoch."""
    parts = min(parts, whole.size)
    edges = [whole.start + whole.size * part // parts for part in range(parts + 1)]
    return [
        replace(whole, start=start, end=end, leader_epoch=whole.leader_epoch if not place else -1)
        for place, (start, end) in enumerate(pairwise(edges))
    ]


def is_held_back(
    priors: Iterable[PriorEpoch], thresholds: Thresholds, read: Mapping[TopicPartition, int]
) -> bool:
    """Whether a partition must not be read yet (KIP-253): one of its prior partitions has records
    that no earlier micro-batch has read. ``read`` are the positions, or log start offsets that are
    higher; partitions that the query does not read are not in it and hold back nothing.
    """
    return any(
        prior not in thresholds or read[prior.partition] < thresholds[prior]
        for prior in priors
        if prior.partition in read
    )
