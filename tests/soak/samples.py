"""What a process holds, sampled from /proc, and whether it grows. Growth is judged by medians of
windows: the last quarter of a run against its second quarter. What a process takes while it
warms up does not count, and a single peak does not either.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import NamedTuple

MIN_SAMPLES = 8
STALL_S = 4.0
"""A broker that stood still for less has lost no session."""


class Sample(NamedTuple):
    """What one process held at a moment."""

    at_s: float
    anonymous_kb: int
    """Memory of its own: no pages of files, which the kernel lends."""
    descriptors: int
    threads: int


LIMITS: dict[str, tuple[float, float]] = {
    "anonymous_kb": (4096, 0.05),
    "descriptors": (8, 0.05),
    "threads": (2, 0.0),
}
"""What may be more at the end than before: so much, or this share, whichever is larger."""


@dataclass(frozen=True)
class Growth:
    """One quantity's medians of two windows of a run."""

    what: str
    before: float
    after: float

    @property
    def is_leak(self) -> bool:
        """Whether it grew by more than LIMITS allow."""
        least, share = LIMITS[self.what]
        return self.after - self.before > max(least, self.before * share)

    def __str__(self) -> str:
        return f"{self.what} {self.before:g} -> {self.after:g}"


def sample(pid: int, at_s: float) -> Sample:
    """Read a process's figures; ProcessLookupError when it has ended."""
    figures = {"RssAnon": 0, "Threads": 0}
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
            for line in status:
                name, _, rest = line.partition(":")
                if name in figures:
                    figures[name] = int(rest.split()[0])
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    except FileNotFoundError:
        raise ProcessLookupError(f"process {pid} has ended") from None
    return Sample(at_s, figures["RssAnon"], descriptors, figures["Threads"])


def growth(samples: list[Sample]) -> list[Growth]:
    """The second quarter of a run against its last; ValueError with too few samples."""
    if len(samples) < MIN_SAMPLES:
        raise ValueError(f"{len(samples)} samples are too few to judge: {MIN_SAMPLES} are needed")
    begin, end = samples[0].at_s, samples[-1].at_s
    quarter = (end - begin) / 4
    second = [s for s in samples if begin + quarter <= s.at_s < begin + 2 * quarter]
    last = [s for s in samples if s.at_s >= end - quarter]
    return [
        Growth(
            what, median(getattr(s, what) for s in second), median(getattr(s, what) for s in last)
        )
        for what in LIMITS
    ]


def stalls(samples: list[Sample], every_s: float) -> list[float]:
    """The gaps between samples that are longer than they should be, in seconds: the machine gave
    the soak itself no time.
    """
    times = [0.0, *(each.at_s for each in samples)]
    gaps = [after - before - every_s for before, after in pairwise(times)]
    return [gap for gap in gaps if gap > STALL_S]
