"""Which name somebody may have meant who has mistyped one."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["did_you_mean", "nearest_name"]


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like it, if one is like it at all."""
    from difflib import get_close_matches  # only when somebody has mistyped

    close = get_close_matches(name, list(known), n=1, cutoff=0.5)
    return close[0] if close else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name; empty where no known one is like it."""
    nearest = nearest_name(name, known)
    return f"; did you mean {nearest}?" if nearest else ""
