"""The planted bugs of share groups, which mutations.py lists: each breaks a rule of the state that
is kept (share_state) or of deliveries (deliveries.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import kstore.broker.runtime.shares.share_coordinator as share_coordinator
import kstore.broker.runtime.shares.share_partition as share_partition
import kstore.broker.state.shares.share_shard as share_shard
from kstore.errors import ErrorCode

if TYPE_CHECKING:
    from tests.sim.mutations import Put


def lost_updates(put: Put) -> None:
    read_records = share_coordinator.read_records

    async def forgetful(log: Any) -> AsyncIterator[Any]:
        async for record in read_records(log):
            if record.offset % 3 or record.key[:2] == b"\0\0":
                yield record

    put(share_coordinator, "read_records", forgetful)


def unfenced_leaders(put: Put) -> None:
    write = share_shard.ShareShard.write

    def trusting(self: Any, key: Any, change: Any, now_ms: int) -> Any:
        return write(self, key, change._replace(leader_epoch=-1), now_ms)

    put(share_shard.ShareShard, "write", trusting)


def short_locks(put: Put) -> None:
    class Impatient(share_partition.InFlightRecords):
        def acquire(self, *given: Any, deadline: int, **more: Any) -> Any:
            return super().acquire(*given, deadline=deadline - 1900, **more)

    put(share_partition, "InFlightRecords", Impatient)


def anybody_acknowledges(put: Put) -> None:
    class Trusting(share_partition.InFlightRecords):
        def acquire(self, owner: int, *given: Any, **more: Any) -> Any:
            return super().acquire(1, *given, **more)

        def acknowledge(self, owner: int, *given: Any, **more: Any) -> Any:
            return super().acknowledge(1, *given, **more)

        def release(self, owner: int, *given: Any, **more: Any) -> Any:
            return super().release(1, *given, **more)

    put(share_partition, "InFlightRecords", Trusting)


def hasty_acceptance(put: Put) -> None:
    acknowledge = share_partition.SharePartition.acknowledge

    def hasty(self: Any, *given: Any) -> int:
        found = acknowledge(self, *given)
        return found if isinstance(found, int) else ErrorCode.NONE

    put(share_partition.SharePartition, "acknowledge", hasty)


def forgotten_acceptance(put: Put) -> None:
    read = share_partition.InFlightRecords
    put(share_partition, "InFlightRecords", lambda start, batches: read(start, ()))


def uncounted_deliveries(put: Put) -> None:
    class Generous(share_partition.InFlightRecords):
        def acknowledge(self, *given: Any, max_deliveries: int, **more: Any) -> Any:
            return super().acknowledge(*given, max_deliveries=100, **more)

    put(share_partition, "InFlightRecords", Generous)


def lost_locks(put: Put) -> None:
    class Strict(share_partition.InFlightRecords):
        def expire(self, *given: Any, max_deliveries: int) -> Any:
            return super().expire(*given, max_deliveries=1)

    put(share_partition, "InFlightRecords", Strict)
