"""The planted bugs of exact copies, which mutations.py lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kstore.broker.runtime.replication.replica_manager as replica_manager
import kstore.broker.runtime.topics.topics as topics
import kstore.clients.replicator.exact as exact
from kstore.broker.runtime.transactions.producer_ids import ProducerIds
from kstore.record import batches

if TYPE_CHECKING:
    from tests.sim.mutations import Put


def holes_in_copies(put: Put) -> None:
    plan_exact = exact.plan_exact

    def careless(data: Any, position: int) -> Any:
        found = list(batches(data))
        if position > 0 and len(found) > 1:
            position = max(position, found[0].next_offset)
        return plan_exact(data, position)

    put(exact, "plan_exact", careless)


def same_ids(put: Put) -> None:
    async def do_nothing(self: Any, least: int) -> None:
        return

    def ask_for_none(configs: Any) -> int:
        return 1 << 62 if configs.get("kstore.mirror") == "true" else 0

    put(ProducerIds, "skip_to", do_nothing)
    for module in (topics, replica_manager):
        put(module, "least_producer_id", ask_for_none)
