"""A finding of `kstore upgrade check`."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Finding"]


class Finding(NamedTuple):
    """What was checked, what was found, what this version supports, and what to do if it is not
    good.
    """

    check: str
    item: str
    found: str
    known: str
    good: bool
    advice: str = ""
