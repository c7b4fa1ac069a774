"""The planted bugs of share groups: each breaks a rule of the stored state (share_state) or of
deliveries (deliveries.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import kstore.broker.runtime.shares.share_coordinator as share_coordinator
import kstore.broker.runtime.shares.share_partition as share_partition
import kstore.broker.state.shares.share_shard as share_shard
from kstore.broker.runtime.shares.share_partition import InFlightRecords
from kstore.errors import ErrorCode
from tests.sim.bugs.planting import bug

SHARING = "--brokers 3 --seconds 10 --workloads produce,sharing --faults {}"
RECORDS = share_partition, "InFlightRecords"


@bug("lost-updates", "share_state", "--faults kill --workloads produce,share",
     "some updates of share-partitions are passed over when a coordinator loads",
     (share_coordinator, "read_records"))  # fmt: skip
async def lost_updates(was: Any, log: Any) -> AsyncIterator[Any]:
    async for record in was(log):
        if record.offset % 3 or record.key[:2] == b"\0\0":
            yield record


@bug("unfenced-leaders", "share_state", "--faults none --workloads produce,share",
     "a share-partition's leader writes though another one has taken over",
     (share_shard.ShareShard, "write"))  # fmt: skip
def unfenced_leaders(was: Any, self: Any, key: Any, change: Any, now_ms: int) -> Any:
    return was(self, key, change._replace(leader_epoch=-1), now_ms)


@bug("short-locks", "one_holder", SHARING.format("none"),
     "acquisition locks end before their time", RECORDS)  # fmt: skip
class Impatient(InFlightRecords):
    def acquire(self, *given: Any, deadline: int, **more: Any) -> Any:
        return super().acquire(*given, deadline=deadline - 1900, **more)


@bug("anybody-acknowledges", "one_holder", SHARING.format("none"),
     "a member acknowledges what another one has acquired meanwhile", RECORDS)  # fmt: skip
class Trusting(InFlightRecords):
    def acquire(self, owner: int, *given: Any, **more: Any) -> Any:
        return super().acquire(1, *given, **more)

    def acknowledge(self, owner: int, *given: Any, **more: Any) -> Any:
        return super().acknowledge(1, *given, **more)

    def release(self, owner: int, *given: Any, **more: Any) -> Any:
        return super().release(1, *given, **more)


@bug("hasty-acceptance", "accepted_once", SHARING.format("behind,kill"),
     "an acknowledgement is answered before it is kept",
     (share_partition.SharePartition, "acknowledge"))  # fmt: skip
def hasty_acceptance(was: Any, *given: Any) -> int:
    found = was(*given)
    return found if isinstance(found, int) else ErrorCode.NONE


bug("forgotten-acceptance", "accepted_once", SHARING.format("kill"),
    "a new leader of a share-partition knows only where it begins",
    RECORDS)(lambda was, start, batches: was(start, ()))  # fmt: skip


@bug("uncounted-deliveries", "delivery_count", SHARING.format("none"),
     "what is released comes again without an end", RECORDS)  # fmt: skip
class Generous(InFlightRecords):
    def acknowledge(self, *given: Any, max_deliveries: int, **more: Any) -> Any:
        return super().acknowledge(*given, max_deliveries=100, **more)


@bug("lost-locks", "share_lost", SHARING.format("none"),
     "a record whose lock has ended is not delivered again", RECORDS)  # fmt: skip
class Strict(InFlightRecords):
    def expire(self, *given: Any, max_deliveries: int) -> Any:
        return super().expire(*given, max_deliveries=1)
