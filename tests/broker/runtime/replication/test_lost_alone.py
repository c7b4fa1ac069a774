"""A leader was the only in-sync replica and lost the end of its log while it was down. Its
followers keep what they have of that end, and the leader copies it from them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kstore.record import batches
from tests.beside.waiting import reached
from tests.broker.runtime.replication.replication_harness import Node, new_image, run
from tests.broker.runtime.replication.test_segment_repairs import PLACE, Leader

REPLICAS = (1, 2, 3)
EVERYWHERE, BEHIND, END = 3, 5, 7
"""Up to there all are in sync; the followers have so much; so much was acknowledged."""


def offsets(node: Node) -> list[int]:
    """The first offsets of the batches in a node's log; each batch has one record."""
    return [batch.base_offset for batch in batches(node.contents())]


def cut(path: Path, count: int) -> None:
    """Keep this number of batches in a segment."""
    found = list(batches(path.read_bytes()))
    os.truncate(path, found[count].position if count < len(found) else path.stat().st_size)


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize("epoch", [0, 1])
@pytest.mark.parametrize("left", [0, EVERYWHERE, EVERYWHERE + 1, BEHIND, BEHIND + 1])
def test_what_a_leader_lost_that_was_in_sync_alone_comes_from_who_still_has_it(
    tmp_path: Path, epoch: int, left: int
) -> None:
    """``epoch``: that of the records that are not committed on all replicas."""

    async def told() -> None:
        image = new_image()
        leader = Leader(1, tmp_path / "1", image)
        followers = Node(2, tmp_path / "2", image), Node(3, tmp_path / "3", image)
        for node in (leader, *followers):
            await node.start()
        leader.lead(0, 0, REPLICAS, REPLICAS)
        for node in followers:
            node.follow(1, 0)
        for _ in range(EVERYWHERE):
            leader.append(b"everywhere")
        await reached(lambda: all(n.partition().high_watermark == EVERYWHERE for n in followers))
        if epoch:
            leader.repairs.close()
            leader.lead(epoch, 1, REPLICAS, REPLICAS)
            for node in followers:
                node.follow(1, epoch)
        for _ in range(EVERYWHERE, BEHIND):
            leader.append(b"followers have it")
        await reached(lambda: all(n.partition().log_end_offset == BEHIND for n in followers))
        for node in followers:
            node.fetchers.stop_all()
        await reached(lambda: not leader.plane.open_connections())
        leader.table.replication.max_lag_ms = -1  # a replica that is not in sync holds nothing back
        leader.partition().isr_applied((1,), 2, epoch)
        for _ in range(BEHIND, END):
            leader.append(b"only here")
        leader.repairs.close()
        file = Path(leader.partition().log.segments[-1].path)
        leader.stop()
        cut(file, left)
        await leader.start()
        log = leader.partition().log
        log.skip_lost()
        leader.table.replication.max_lag_ms = -1
        leader.lead(2, 3, REPLICAS, (1,))
        leader.repairs.note(PLACE)
        for node in followers:
            node.follow(1, 2)
        try:
            kept = max(left, BEHIND)
            await reached(lambda: offsets(leader) == [*range(kept)], 8)
            assert leader.append(b"next") == END
            expected = [*range(kept), END]
            await reached(lambda: all(offsets(n) == expected for n in (leader, *followers)))
            await reached(lambda: not log.lost)
            assert log.core.epochs.as_list()[-1] == (2, END)
        finally:
            leader.repairs.close()
            for node in (leader, *followers):
                node.stop()

    run(told)
