"""One thing that `kstore upgrade check` looked at."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Finding"]


class Finding(NamedTuple):
    """What was looked at, what is there, what is known here, and what to do if it is not good."""

    check: str
    item: str
    found: str
    known: str
    good: bool
    advice: str = ""
