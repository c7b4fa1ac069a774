"""The planted bugs of exact copies, which mutations.py lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kstore.clients.replicator.exact as exact
from kstore.record import batches

if TYPE_CHECKING:
    from tests.sim.mutations import Put

__all__ = ["holes_in_copies"]


def holes_in_copies(put: Put) -> None:
    plan_exact = exact.plan_exact

    def careless(data: Any, position: int) -> Any:
        found = list(batches(data))
        if position > 0 and len(found) > 1:
            position = max(position, found[0].next_offset)
        return plan_exact(data, position)

    put(exact, "plan_exact", careless)
