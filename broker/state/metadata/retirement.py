"""The partitions of a topic that retire in a contraction (KIP-253). A part of the image."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Retirement"]


class Retirement(NamedTuple):
    """A contraction: a topic's last partitions accept no more records."""

    first: int
    """The first partition that retires. All later ones retire, too."""
    epoch: int
    """The last leader epoch in which the first one accepted records."""
    partition_epoch: int
    """The partition epoch of the first one. Together they identify this contraction."""
    holds: bool = False
    """Whether it is decided: producers no longer count the retired partitions. Otherwise it is
    prepared.
    """

    def is_same(self, other: Retirement | None) -> bool:
        """Whether it is the same contraction, decided or not."""
        return other is not None and self[:3] == other[:3]
