"""Real brokers on a small disk that becomes full. Of three, the others continue, no acknowledged
record is lost, and the one catches up when there is space again. A broker alone can delete topics.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstore.clients import AdminClient
from kstore.clients import Producer as KstoreProducer
from tests.beside import small_disks
from tests.beside.waiting import until
from tests.conformance.kstore_broker import KstoreBroker
from tests.conformance.kstore_cluster import PARTITIONS, THREE_REPLICAS, KstoreCluster
from tests.faults.histories import Producer, all_records, check_records

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DISK_MB = 64


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk that can be filled."""
    with small_disks.small_disk(tmp_path / "disk", f"{DISK_MB}m") as folder:
        yield folder


def test_a_full_disk_takes_one_broker_out_of_sync_until_there_is_room(
    tmp_path: Path, small_disk: Path
):
    settings = THREE_REPLICAS | {"log.segment.bytes": str(4 << 20)}
    cluster = KstoreCluster(tmp_path, 2, overrides=settings)
    cluster.add(3, {"log.dirs": str(small_disk / "logs")})
    with cluster:
        cluster.create_topic("orders", PARTITIONS, 3)
        producer = Producer("p", cluster.bootstrap, "orders", PARTITIONS)
        producer.start()
        until(lambda: len(producer.acknowledged) > 100, "records are acknowledged")
        filler = small_disks.fill(small_disk)
        full = len(producer.acknowledged)  # later records use the space that was reserved

        def goes_on_without() -> bool:
            rows = cluster.topic("orders", 1).partitions
            return all(3 not in row.isr and row.leader in (1, 2) for row in rows)

        until(
            goes_on_without, "the broker with the full disk is out of sync and leads nothing", 120
        )
        until(lambda: len(producer.acknowledged) > full + 100, "the others go on", 120)
        filler.unlink()
        until(lambda: cluster.all_in_sync("orders"), "it has caught up", 120)
        producer.finish()
        assert not producer.failed
        stored = all_records(cluster.bootstrap, "orders", PARTITIONS, "read_uncommitted")
        check_records(stored, [producer], [])


def test_a_topic_can_be_deleted_while_the_disk_is_full(tmp_path: Path, small_disk: Path) -> None:
    """That is how an operator gets space again."""
    broker = KstoreBroker(tmp_path, overrides={"log.dirs": str(small_disk / "logs")})
    with broker, AdminClient(broker.bootstrap) as admin:
        admin.create_topics({"large": 1, "small": 1})
        with KstoreProducer(broker.bootstrap, acks="all") as producer:
            for _ in range(20):
                producer.send("large", value=os.urandom(500_000), partition=0).result(60)
        small_disks.fill(small_disk)
        assert os.statvfs(small_disk).f_bavail == 0
        admin.delete_topics(["large"])
        until(lambda: _free_bytes(small_disk) > 8 << 20, "the disk has space again")
        assert admin.list_topics() == ["small"]
        with KstoreProducer(broker.bootstrap, acks="all") as producer:
            assert producer.send("small", value=b"x", partition=0).result(60) == 0


def _free_bytes(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
