"""What a follower decides: where to cut a log that has parted from its leader's (KIP-101, KIP-279,
KIP-595), where to begin when the leader does not have the offset asked for, and how long to wait
before it tries again. And where a leader cuts its own log: its followers can't go on otherwise.

Pure: offsets and epochs in, decisions out. Cutting and asking is runtime/replication/fetchers.py's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = [
    "BackOff", "Cut", "cut_at_damage", "cut_at_divergence", "cut_out_of_range", "names_replica",
    "nobody_has",
]  # fmt: skip

UNKNOWN = -1


class Cut(NamedTuple):
    """What is to become of a log before it is copied on."""

    offset: int
    restart: bool = False
    """Nothing of the log stays; it begins anew, empty, at the offset. Else: it ends there."""


def cut_at_divergence(
    own: tuple[int, int], leaders: tuple[int, int], log_start_offset: int, log_end_offset: int
) -> Cut:
    """Where the log parts from the leader's. ``leaders`` is the leader's answer: the largest of its
    epochs not above the log's last one, and where that ends; ``own`` is the same of this log for
    the epoch that the leader named, (-1, -1) where it has none.

    Where this log does not have the leader's epoch, it is cut at the end of the next smaller one,
    and the leader is asked again.
    """
    epoch, end_offset = leaders
    own_epoch, own_end_offset = own
    if own_epoch == UNKNOWN or own_end_offset == UNKNOWN:
        offset = end_offset
    elif own_epoch == epoch:
        offset = min(own_end_offset, end_offset)
    else:
        offset = own_end_offset
    offset = min(offset, log_end_offset)
    return Cut(offset, restart=offset < log_start_offset)


def cut_out_of_range(log_end_offset: int, leaders: tuple[int, int]) -> Cut:
    """What to do when the leader, whose log is [start, end), does not have the offset at which this
    log ends: end where the leader's ends (after an unclean election), or begin where it begins.
    """
    start_offset, end_offset = leaders
    if end_offset < log_end_offset:
        return Cut(end_offset)
    if start_offset > log_end_offset:
        return Cut(start_offset, restart=True)
    return Cut(log_end_offset)


def cut_at_damage(
    damaged: Sequence[int], high_watermark: int, ends: Sequence[int | None]
) -> int | None:
    """Where a leader may cut its log: the first damaged offset that is not committed, if no other
    replica has it or what is behind it. None: nowhere, or that is not known yet.

    ``ends`` says of each other replica how far it has come, None where that is not known.
    """
    known = [end for end in ends if end is not None]
    if len(known) < len(ends):
        return None
    return min((at for at in damaged if at >= max([high_watermark, *known])), default=None)


def nobody_has(first_offset: int, ends: Sequence[int | None], has_none: Sequence[bool]) -> bool:
    """Whether no other replica has what begins at an offset: each ends there or before, or was
    asked and has no records there. ``ends`` is as for cut_at_damage, ``has_none`` in its order.
    """
    return all(
        none or (end is not None and end <= first_offset)
        for end, none in zip(ends, has_none, strict=True)
    )


class BackOff:
    """Pauses that double from the first to the longest, and begin anew after a quiet time."""

    __slots__ = ("_failures", "_last_s", "first_s", "longest_s")

    def __init__(self, first_s: float, longest_s: float) -> None:
        self.first_s = first_s
        self.longest_s = longest_s
        self._failures = 0
        self._last_s = 0.0

    def pause_s(self, now_s: float) -> float:
        """How long to wait after a failure at this time."""
        if now_s - self._last_s > 2 * self.longest_s:
            self._failures = 0
        self._last_s = now_s
        pause = min(self.first_s * 2.0**self._failures, self.longest_s)
        self._failures = min(self._failures + 1, 62)
        return pause


def names_replica(throttled: Sequence[str], partition: int, node_id: int) -> bool:
    """Whether a topic's list of throttled replicas (KIP-73) has this one: partition:broker pairs,
    or * for all.
    """
    return "*" in throttled or f"{partition}:{node_id}" in throttled
