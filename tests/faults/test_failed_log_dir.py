"""Real brokers whose log dir fails: its own partitions are offline, all others are served; others
lead them in a cluster; a start with a log dir that can't be read is one with the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kstore.clients import AdminClient, Producer
from kstore.clients.admin import NewTopic
from kstore.errors import ErrorCode, KafkaError
from kstore.protocol.logs.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.conformance.kstore_broker import KstoreBroker
from tests.conformance.kstore_cluster import KstoreCluster, until
from tests.conformance.probes.peer import Peer
from tests.faults.disks import FaultyDisk

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

EVERYTHING = "wsfnr"


@pytest.fixture
def broker(tmp_path: Path, faulty_disk: FaultyDisk) -> Iterator[KstoreBroker]:
    """A broker with two log dirs, the second of them on the disk; it is not started."""
    dirs = tmp_path / "healthy", faulty_disk.folder / "logs"
    settings = {"log.dirs": ",".join(map(str, dirs)), "offsets.topic.num.partitions": "1"}
    made = KstoreBroker(
        tmp_path / "broker", overrides=settings, environment=faulty_disk.environment
    )
    yield made
    made.stop()


def lies_on(disk: FaultyDisk, topic: str) -> list[int]:
    """The partitions of a topic that lie on the disk."""
    found = (disk.folder / "logs").glob(f"{topic}-*")
    return sorted(int(path.name.rpartition("-")[2]) for path in found)


def send(broker: KstoreBroker, topic: str, partition: int, value: bytes = b"value") -> int:
    """Append a record; its offset. A KafkaError if that does not go within a second or two."""
    with Producer(
        bootstrap_servers=broker.bootstrap, delivery_timeout_ms=2_000, request_timeout_ms=1_500,
        enable_idempotence=False, linger_ms=0,
    ) as producer:  # fmt: skip
        offset: int = producer.send(topic, value, partition=partition).result(30)
        return offset


def leaders(admin: AdminClient, topic: str) -> list[int | None]:
    """Who leads each partition."""
    [described] = admin.describe_topics([topic])
    return [each.leader for each in described.partitions]


def in_sync(admin: AdminClient, topic: str) -> list[set[int]]:
    """Who has all of each partition."""
    [described] = admin.describe_topics([topic])
    return [set(each.isr) for each in described.partitions]


def deleted(peer: Peer, topic: str, partition: int) -> int:
    """The error code of DeleteRecords."""
    row = DeleteRecordsPartition(partition_index=partition, offset=0)
    request = DeleteRecordsRequest(
        timeout_ms=1000, topics=[DeleteRecordsTopic(name=topic, partitions=[row])]
    )
    answer: Any = peer.ask(request, 1)
    code: int = answer.topics[0].partitions[0].error_code
    return code


def fail(broker: KstoreBroker, disk: FaultyDisk, topic: str, partition: int) -> None:
    """Have the disk fail, and somebody notice."""
    disk.fail(kinds=EVERYTHING)
    with pytest.raises(KafkaError):
        send(broker, topic, partition)
    until(lambda: "has failed" in broker.error_output(), "the log says that it has failed")


def test_a_failed_log_dir_takes_its_own_partitions_offline(
    broker: KstoreBroker, faulty_disk: FaultyDisk
) -> None:
    broker.start()
    with AdminClient(broker.bootstrap) as admin:
        admin.create_topics([NewTopic("t", 2)])
        [gone] = lies_on(faulty_disk, "t")
        here = 1 - gone
        assert (send(broker, "t", gone), send(broker, "t", here)) == (0, 0)
        fail(broker, faulty_disk, "t", gone)
        assert broker.error_output().count("has failed, and its 1 partitions are offline") == 1
        until(lambda: leaders(admin, "t")[gone] in (None, -1), "nobody leads it")
        assert leaders(admin, "t")[here] == 1
        assert send(broker, "t", here) == 1
        peer = Peer("kstore", broker.host, broker.port)
        assert peer.serves("t") == ErrorCode.KAFKA_STORAGE_ERROR
        assert deleted(peer, "t", gone) == ErrorCode.KAFKA_STORAGE_ERROR
        peer.reset()
        [rows] = admin.describe_log_dirs().values()
        errors = {path: row.error for path, row in rows.items()}
        failed = errors.pop(str(faulty_disk.folder / "logs"))
        assert failed is not None
        assert failed.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert list(errors.values()) == [None]
        admin.create_topics([NewTopic("new", 4)])
        assert lies_on(faulty_disk, "new") == []
        assert [send(broker, "new", index) for index in range(4)] == [0] * 4
    broker.kill()
    faulty_disk.thaw()
    broker.start()
    assert send(broker, "t", gone) == 1
    assert send(broker, "t", here) == 2


def test_a_start_with_a_log_dir_that_cannot_be_read_is_one_with_the_others(
    broker: KstoreBroker, faulty_disk: FaultyDisk
) -> None:
    with broker, AdminClient(broker.bootstrap) as admin:
        admin.create_topics([NewTopic("t", 2)])
        [gone] = lies_on(faulty_disk, "t")
        assert send(broker, "t", gone) == 0
    faulty_disk.fail(kinds=EVERYTHING)
    with broker, AdminClient(broker.bootstrap) as admin:
        assert "can't be opened, and its partitions are offline" in broker.error_output()
        assert leaders(admin, "t")[gone] in (None, -1)
        assert send(broker, "t", 1 - gone) == 0
        with pytest.raises(KafkaError):
            send(broker, "t", gone)
    faulty_disk.thaw()
    with broker:
        assert send(broker, "t", gone) == 1


def test_a_broker_without_a_log_dir_that_works_stops(
    tmp_path: Path, faulty_disk: FaultyDisk
) -> None:
    broker = KstoreBroker(
        tmp_path / "broker",
        overrides={"log.dirs": str(faulty_disk.folder / "logs")},
        environment=faulty_disk.environment,
    )
    with broker:
        with AdminClient(broker.bootstrap) as admin:
            admin.create_topics([NewTopic("t", 1)])
        faulty_disk.fail(kinds=EVERYTHING)
        with pytest.raises(KafkaError):
            send(broker, "t", 0)
        assert broker.process is not None
        assert broker.process.wait(60) != 0
        assert "no log dir works any more" in broker.error_output()
        faulty_disk.thaw()
        broker.stop()


def test_others_lead_what_lies_in_a_failed_log_dir(tmp_path: Path, faulty_disk: FaultyDisk) -> None:
    cluster = KstoreCluster(tmp_path, 2)
    dirs = tmp_path / "healthy", faulty_disk.folder / "logs"
    one = KstoreBroker(
        tmp_path / "one",
        overrides={
            "log.dirs": ",".join(map(str, dirs)),
            "node.id": "3",
            "kstore.coordination.dir": str(tmp_path / "coordination"),
        },
        environment=faulty_disk.environment,
    )
    with cluster, one, AdminClient(one.bootstrap) as admin:
        until(lambda: len(cluster.broker_ids()) == 3, "all are there")
        replicas = {index: [3, 1, 2] for index in range(4)}
        admin.create_topics([NewTopic("t", replicas=replicas)])
        gone = lies_on(faulty_disk, "t")
        assert len(gone) == 2
        until(lambda: leaders(admin, "t") == [3] * 4, "it leads them all")
        assert [send(one, "t", index) for index in range(4)] == [0] * 4
        faulty_disk.fail(kinds=EVERYTHING)
        until(lambda: send(one, "t", gone[0]) > 0, "another one leads the partition")
        until(
            lambda: (
                [leaders(admin, "t")[i] in (1, 2) for i in range(4)]
                == [i in gone for i in range(4)]
            ),
            "others lead what lay there, and it leads the rest",
        )
        assert all(send(one, "t", index) > 0 for index in range(4))
        one.kill()
        faulty_disk.thaw()
        one.start()
        until(lambda: in_sync(admin, "t") == [{1, 2, 3}] * 4, "it is back in sync", 120)
