"""Planted bugs of topics that grow and shrink with the order of their keys kept (KIP-253)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import kstore.broker.runtime.controller.retired as retired
import kstore.broker.state.groups.consumer.ordered_expansion as ordered_expansion
import kstore.broker.state.groups.coordinator.coordinator_shard as coordinator_shard
import kstore.broker.state.groups.offsets as offsets

Put = Callable[[Any, str, Any], None]


def open_gates(put: Put) -> None:
    """Groups may be given everything."""

    def nothing(shard: Any, group_id: str, image: Any, topic: Any) -> frozenset[int]:
        return frozenset()

    put(ordered_expansion, "held_back", nothing)


def nothing_is_left(put: Put) -> None:
    """The controller takes retired partitions for empty."""

    async def empty(self: Any, *given: Any) -> bool:
        return True

    put(retired.RetiredLogs, "are_empty", empty)


def offsets_stay(put: Put) -> None:
    """Groups keep what they have committed in partitions that are gone, for the next ones."""

    def nothing(self: Any, name: str, first: int = 0) -> Iterator[Any]:
        return iter(())

    put(coordinator_shard.GroupShard, "forget_topic", nothing)
    put(offsets, "_is_of_another_life", lambda *given: False)


def nobody_waits(put: Put) -> None:
    """The controller asks no coordinator which groups are behind."""

    async def nobody(self: Any, *given: Any) -> str:
        return ""

    put(retired.RetiredLogs, "who_is_behind", nobody)
