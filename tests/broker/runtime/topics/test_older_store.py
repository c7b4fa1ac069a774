"""A single broker whose logs have later leader epochs than its store leads in these."""

from __future__ import annotations

from pathlib import Path

import kstore
from kstore._fast.record.builder import build_batch
from kstore.broker.coordination import znodes
from tests.broker.api.requests.world import World, in_world


def test_a_log_with_later_leader_epochs_keeps_its_records(tmp_path: Path) -> None:
    folders = []

    async def begin(world: World) -> None:
        folders.append(world.broker.log_manager.dirs[0].path)

    async def story(world: World) -> None:
        topic = world.broker.image.topics["t"]
        assert [each.leader_epoch for each in topic.partitions] == [9]
        stored = znodes.read_topic(world.broker.store, "t")
        assert [each.leader_epoch for each in stored.partitions] == [9]
        partition = world.broker.table.partition(b"t", 0)
        assert partition is not None
        assert partition.leader_epoch == 9
        code, *_ = partition.append_batches(bytearray(build_batch([b"next"])), origin=0)
        assert code == 0

    in_world(tmp_path, begin)
    with kstore.open_log(folders[0], topic="t") as log:
        log.append_many([b"first"], leader_epoch=2)
        log.append_many([b"second"], leader_epoch=9)
    for _ in range(2):
        in_world(tmp_path, story)
    with kstore.open_log(folders[0], topic="t", read_only=True) as log:
        found = [record.value for record in log.records(0)]
    assert found == [b"first", b"second", b"next", b"next"]
