"""Pauses between retries: they double up to a limit, with a jitter of a fifth, so that clients do
not all return at the same time (KIP-580); and the age at which metadata is fetched again.

Randomness is passed in as a number from 0 to 1.
"""

from __future__ import annotations

__all__ = ["pause_ms", "refresh_age_ms"]

_JITTER = 0.2
_DOUBLINGS = 30  # larger exponents reach any limit


def pause_ms(failures: int, first_ms: int, max_ms: int, chance: float) -> float:
    """The pause after this many consecutive failures (1: the first)."""
    grown = min(first_ms * 2.0 ** min(max(failures, 1) - 1, _DOUBLINGS), max(first_ms, max_ms))
    return grown * (1 - _JITTER + 2 * _JITTER * chance)


def refresh_age_ms(max_age_ms: int, chance: float) -> float:
    """The age at which metadata is fetched again: never above metadata.max.age.ms, and different
    each time, so that a client does not always meet the same lagging broker (KIP-359).
    """
    return max_age_ms * (1 - _JITTER * chance)
