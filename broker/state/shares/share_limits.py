"""The settings of a share group for its records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["EARLIEST", "LATEST", "ShareLimits", "limits_of"]

EARLIEST = -1
LATEST = -2
DURATION = re.compile(r"by_duration:P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
UNIT_MS = (86_400_000, 3_600_000, 60_000, 1000)


class ShareLimits(NamedTuple):
    """The settings of one group, which the leaders of its partitions use."""

    lock_ms: int
    max_deliveries: int
    max_record_locks: int
    committed: bool
    """Whether share.isolation.level is read_committed."""
    reset_ms: int
    """share.auto.offset.reset: where a new group starts, in ms before now, or EARLIEST or
    LATEST.
    """
    renews: bool
    """Whether a lock may be renewed."""


def limits_of(configs: Mapping[str, Any]) -> ShareLimits:
    """Convert a group's typed settings."""
    return ShareLimits(
        configs["share.record.lock.duration.ms"],
        configs["share.delivery.count.limit"],
        configs["share.partition.max.record.locks"],
        configs["share.isolation.level"] == "read_committed",
        _reset_ms(configs["share.auto.offset.reset"]),
        configs["share.renew.acknowledge.enable"],
    )


def _reset_ms(text: str) -> int:
    if text == "earliest":
        return EARLIEST
    found = DURATION.fullmatch(text)
    if found is None:
        return LATEST
    parts = zip(found.groups(), UNIT_MS, strict=True)
    return int(sum(float(count) * unit for count, unit in parts if count is not None))
