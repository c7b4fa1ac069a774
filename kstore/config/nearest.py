"""Finds the most similar name for a mistyped one."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["did_you_mean", "nearest_name"]


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The most similar known name; None if no name is similar."""
    from difflib import get_close_matches  # only for a mistyped name

    close = get_close_matches(name, list(known), n=1, cutoff=0.5)
    return close[0] if close else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name; empty if no known name is similar."""
    nearest = nearest_name(name, known)
    return f"; did you mean {nearest}?" if nearest else ""
