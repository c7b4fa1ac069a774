"""Offsets of a transaction while its marker arrives: they must not follow it in the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kstore.broker.runtime.transactions.produce import has_transaction
from kstore.broker.state.transactions.steps import Claim
from kstore.errors import ErrorCode
from kstore.protocol.schema import ZERO_UUID
from tests.beside.waiting import turns
from tests.broker.runtime.coordinators.cluster_host import GROUPS
from tests.broker.runtime.groups.test_partition_lookup import TRANSACTIONAL, Cluster, in_cluster

MINE, ANOTHER = 7, 8  # two producers; the first one commits
LATER = ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize(("marked", "code"), [(MINE, LATER), (ANOTHER, ErrorCode.NONE)])
def test_offsets_do_not_follow_the_marker_of_their_transaction(
    tmp_path: Path, marked: int, code: int
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.serve()
        free: list[bool] = []

        def holds(_: Any) -> Any:
            while not free:
                yield

        cluster.groups().find("g").view(holds)
        row = ("heard-of", ZERO_UUID, 0)
        committing = cluster.begin(TRANSACTIONAL, row)
        await turns(5)
        assert not committing.done()
        assert cluster.markers().write(GROUPS, (marked, 0), 0, committed=False) == ErrorCode.NONE
        free.append(True)
        assert await cluster.ends(committing) == [code]
        partition = cluster.host.places[GROUPS]
        assert has_transaction(partition, Claim(MINE, 0)) == (code == ErrorCode.NONE)
        # A later marker belongs to another transaction.
        assert await cluster.ends(cluster.begin(TRANSACTIONAL, row)) == [ErrorCode.NONE]
        assert has_transaction(partition, Claim(MINE, 0))

    in_cluster(tmp_path, story)
