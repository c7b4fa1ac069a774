"""The planted bugs of exact copies."""

from __future__ import annotations

from typing import Any

import kstore.broker.runtime.replication.replica_manager as replica_manager
import kstore.broker.runtime.topics.topics as topics
import kstore.clients.replicator.exact as exact
from kstore.broker.runtime.transactions import producer_ids
from kstore.record import batches
from tests.sim.bugs.planting import Put, bug

MIRROR = "--faults none --seconds 5 --workloads mirror"


@bug("holes-in-copies", "exact_copy", MIRROR,
     "a replicator leaves batches out, which the gaps that a log may have hide",
     (exact, "plan_exact"))  # fmt: skip
def holes_in_copies(was: Any, data: Any, position: int) -> Any:
    found = list(batches(data))
    if position > 0 and len(found) > 1:
        position = max(position, found[0].next_offset)
    return was(data, position)


@bug("same-ids", "acknowledged", MIRROR,
     "a copy's cluster gives producers ids of the source's: their records are taken for doubles",
     )  # fmt: skip
def same_ids(put: Put) -> None:
    async def do_nothing(self: Any, least: int) -> None:
        return

    def ask_for_none(configs: Any) -> int:
        return 1 << 62 if configs.get("kstore.mirror") == "true" else 0

    put(producer_ids.ProducerIds, "skip_to", do_nothing)
    put(producer_ids, "_has_topics", lambda store: False)
    for module in (topics, replica_manager):
        put(module, "least_producer_id", ask_for_none)
