"""Formats numbers, sizes, times and sources of configs for the pages."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = [
    "shown_age",
    "shown_bytes",
    "shown_count",
    "shown_moment",
    "shown_number",
    "shown_seconds",
]

_SIZES = ("B", "KB", "MB", "GB", "TB", "PB")


def shown_bytes(value: float | None) -> str:
    """1536 is 1.5 KB; None and unknown (-1) a dash."""
    if value is None or value < 0:
        return "–"
    step = 0
    while value >= 1000 and step < len(_SIZES) - 1:
        value /= 1024
        step += 1
    return f"{value:.0f} B" if step == 0 else f"{value:.3g} {_SIZES[step]}"


def shown_number(value: float | None) -> str:
    """1234567 is 1,234,567; numbers below 100 keep one decimal."""
    if value is None:
        return "–"
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}"


def shown_count(count: int, what: str) -> str:
    """1 and "topic" is 1 topic; 1234 is 1,234 topics."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def shown_moment(ms: int | None) -> str:
    """Milliseconds since 1970 as a time in UTC."""
    if ms is None or ms < 0:
        return "–"
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (OverflowError, ValueError):
        return f"{ms} ms"


def shown_seconds(seconds: float) -> str:
    """Seconds since 1970 as a time in UTC."""
    return shown_moment(round(seconds * 1000))[:-4]


def shown_age(seconds: float | None) -> str:
    """90 is 1 min 30 s."""
    if seconds is None or seconds < 0:
        return "–"
    whole = int(seconds)
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"
