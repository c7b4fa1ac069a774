"""Planted bugs of topics that grow and shrink with the order of their keys kept (KIP-253)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kstore.broker.runtime.controller.retired as retired
import kstore.broker.state.groups.consumer.ordered_expansion as ordered_expansion

Put = Callable[[Any, str, Any], None]


def open_gates(put: Put) -> None:
    """Groups may be given everything."""

    def nothing(shard: Any, group_id: str, image: Any, topic: Any) -> frozenset[int]:
        return frozenset()

    put(ordered_expansion, "held_back", nothing)


def nobody_waits(put: Put) -> None:
    """The controller asks no coordinator which groups are behind."""

    async def nobody(self: Any, *given: Any) -> str:
        return ""

    put(retired.RetiredLogs, "who_is_behind", nobody)
