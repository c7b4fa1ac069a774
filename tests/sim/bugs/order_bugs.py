"""Planted bugs of topics that grow and shrink with the order of their keys kept (KIP-253)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kstore.broker.runtime.controller.retired as retired
import kstore.broker.state.groups.consumer.ordered_expansion as ordered_expansion
import kstore.broker.state.groups.coordinator.coordinator_shard as coordinator_shard
import kstore.broker.state.groups.offsets as offsets

Put = Callable[[Any, str, Any], None]


def open_gates(put: Put) -> None:
    """Groups may be given everything."""
    put(ordered_expansion, "held_back", lambda *given, **more: frozenset())


def nothing_is_left(put: Put) -> None:
    """The controller takes retired partitions for empty."""

    async def empty(self: Any, *given: Any) -> bool:
        return True

    put(retired.RetiredLogs, "are_empty", empty)


def offsets_stay(put: Put) -> None:
    """Groups keep what they have committed in partitions that are gone, for the next ones."""
    put(coordinator_shard.GroupShard, "forget_topic", lambda *given, **more: iter(()))
    put(offsets, "_is_of_another_life", lambda *given: False)


def nobody_waits(put: Put) -> None:
    """The controller asks no coordinator which groups are behind."""

    async def nobody(self: Any, *given: Any) -> str:
        return ""

    put(retired.RetiredLogs, "who_is_behind", nobody)
