"""broker/runtime/replication/replicas.py: which logs are prepared before roles are taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstore.errors import ErrorCode
from kstore.log import Log
from tests.broker.runtime.replication.in_cluster import (
    OTHER,
    T0,
    codes,
    isr,
    on_a_loop,
    opened,
    state,
)


@on_a_loop
async def test_a_leader_skips_lost_offsets_if_no_other_log_can_be_opened(folder: Path) -> None:
    """Otherwise it would assign them again."""
    skipped: list[Log] = []

    def skip_lost(log: Log) -> None:
        skipped.append(log)

    async with opened(folder) as broker:
        manager = broker.replica_manager
        assert codes(await manager.leader_and_isr(isr(state(OTHER)))) == [0]
        partition = broker.table.partition(b"t", 0)
        assert partition is not None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Log, "has_lost", property(lambda log: True))
            patch.setattr(Log, "skip_lost", skip_lost)
            patch.setattr(broker.descriptors, "refuse_logs", lambda count: "none is left")
            both = isr(state(epoch=1), state(epoch=1, index=1))
            answer = codes(await manager.leader_and_isr(both))
        assert answer == [0, ErrorCode.KAFKA_STORAGE_ERROR]
        assert list(manager.replicas.hosted) == [T0]
        assert skipped == [partition.log]
