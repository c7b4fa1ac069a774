"""Which partitions of a topic retire, as its contraction (KIP-253) says: a part of the image."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Retirement"]


class Retirement(NamedTuple):
    """A contraction: a topic's last partitions take no records any more."""

    first: int
    """The first of them; all behind it retire too."""
    epoch: int
    """The last leader epoch in which that one took records."""
    partition_epoch: int
    """Of that one. Together they tell this contraction from all others."""
    holds: bool = False
    """Whether it is decided: producers count without them. Else it is prepared."""

    def is_same(self, other: Retirement | None) -> bool:
        """Whether it is the same contraction, decided or not."""
        return other is not None and self[:3] == other[:3]
