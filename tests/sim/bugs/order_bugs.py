"""The planted bugs of topics that grow and shrink while the order of keys is kept (KIP-253)."""

from __future__ import annotations

from typing import Any

import kstore.broker.runtime.controller.growth as growth
import kstore.broker.runtime.controller.preparing as preparing
import kstore.broker.runtime.replication.counts as counts
import kstore.broker.state.groups.consumer.ordered_expansion as ordered_expansion
import kstore.broker.state.groups.coordinator.coordinator_shard as coordinator_shard
from kstore.broker.runtime.controller.retired import RetiredLogs
from kstore.broker.state.metadata.image import MetadataImage
from tests.sim.bugs.planting import Put, bug

SHRINKING = "--brokers 3 --faults none --workloads produce,contract"
DEAF = "--brokers 3 --faults deaf --seconds 30 --workloads produce,expand"

open_gates = lambda was, *given, **more: frozenset()  # noqa: E731
bug(
    "open-gates",
    "key_order",
    "--brokers 3 --faults partition,isolate --workloads produce,expand",
    "a group may read new partitions before what was written to the others until then",
    (ordered_expansion, "held_back"),
)(open_gates)
bug("open-remainder", "key_order", SHRINKING,
    "a group that comes later may read all partitions of a topic that shrinks at once",
    (ordered_expansion, "held_back"))(open_gates)  # fmt: skip


@bug("hasty-contraction", "key_order", SHRINKING,
     "keys move to other partitions before groups have read those that retire",
     (RetiredLogs, "who_is_behind"))  # fmt: skip
async def nobody_waits(was: Any, *given: Any) -> str:
    return ""


@bug("hasty-deletion", "acknowledged", SHRINKING,
     "retired partitions are deleted with their records",
     (RetiredLogs, "are_empty"))  # fmt: skip
async def nothing_is_left(was: Any, *given: Any) -> bool:
    return True


@bug("offsets-of-another-life", "other_life", SHRINKING,
     "a group begins in a new partition where it was in one of that number that is gone",
     )  # fmt: skip
def offsets_stay(put: Put) -> None:
    put(coordinator_shard.GroupShard, "forget_topic", lambda *given, **more: iter(()))
    put(MetadataImage, "has_replaced", lambda *given: False)


bug("patient-controller", "refusals", DEAF, "an expansion waits for leaders as long as it takes",
    (preparing.Preparing, "_deadline"))(lambda *given: float("inf"))  # fmt: skip


@bug("silent-rollback", "refusals", DEAF,
     "leaders are not told of an expansion that is rolled back, and do not look for themselves",
     (growth.ControllerGrowth, "undone"),
     also=[lambda put: put(counts.PreparedCounts, "_look_later", lambda self: None)],
     )  # fmt: skip
def silent_rollback(was: Any, self: Any, expansion: Any, why: str) -> None:
    """The marker is lost, and no error is reported."""
    self._undone[expansion.topic] = "planted"
