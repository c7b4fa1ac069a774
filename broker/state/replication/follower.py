"""A follower's decisions: where to truncate a log that has diverged from its leader's (KIP-101,
KIP-279, KIP-595), where to start if the leader does not have the requested offset, and how long to
wait before the next attempt. Also where a leader truncates its own log, if its followers cannot
continue otherwise.

runtime/replication/fetchers.py executes the decisions.
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
    """How to change a log before copying continues."""

    offset: int
    restart: bool = False
    """Whether to delete the whole log and start again at the offset, empty. Otherwise the log is
    truncated to the offset.
    """


def cut_at_divergence(
    own: tuple[int, int], leaders: tuple[int, int], log_start_offset: int, log_end_offset: int
) -> Cut:
    """Where the log diverges from the leader's. ``leaders`` is the leader's response: its largest
    epoch that is not above the log's last one, and the end offset of that epoch. ``own`` is the
    same from this log for the leader's epoch, (-1, -1) if it has none.

    If this log does not have the leader's epoch, it is truncated to the end of its next smaller
    epoch, and the leader is asked again.
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
    """What to do if the leader, whose log is [start, end), does not have the offset at which this
    log ends: truncate to the leader's end (after an unclean election), or start again at the
    leader's start.
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
    """Where a leader may truncate its log: the first damaged offset that is not committed, if no
    other replica has it or later offsets. None if there is no such offset, or if this is not known
    yet.

    ``ends`` has the log end offset of each other replica, None if it is unknown.
    """
    known = [end for end in ends if end is not None]
    if len(known) < len(ends):
        return None
    return min((at for at in damaged if at >= max([high_watermark, *known])), default=None)


def nobody_has(first_offset: int, ends: Sequence[int | None], has_none: Sequence[bool]) -> bool:
    """Whether no other replica has records from an offset on: each log ends there or before, or its
    broker has reported that it has none. ``ends`` is as for cut_at_damage, ``has_none`` has the
    same order.
    """
    return all(
        none or (end is not None and end <= first_offset)
        for end, none in zip(ends, has_none, strict=True)
    )


class BackOff:
    """Pauses that double, from the first to the longest. After a time without failures they start
    again.
    """

    __slots__ = ("_failures", "_last_s", "first_s", "longest_s")

    def __init__(self, first_s: float, longest_s: float) -> None:
        self.first_s = first_s
        self.longest_s = longest_s
        self._failures = 0
        self._last_s = 0.0

    def pause_s(self, now_s: float) -> float:
        """The pause after a failure at this time."""
        if now_s - self._last_s > 2 * self.longest_s:
            self._failures = 0
        self._last_s = now_s
        pause = min(self.first_s * 2.0**self._failures, self.longest_s)
        self._failures = min(self._failures + 1, 62)
        return pause


def names_replica(throttled: Sequence[str], partition: int, node_id: int) -> bool:
    """Whether a topic's list of throttled replicas (KIP-73) contains this one: partition:broker
    pairs, or * for all.
    """
    return "*" in throttled or f"{partition}:{node_id}" in throttled
