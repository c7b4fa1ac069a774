"""Real brokers with a failed log dir: its partitions are offline, all others are served, and other
brokers of a cluster lead them. A start with an unreadable log dir is a start with the others. If a
log dir hangs, requests that need it wait, all others are answered, and the log names it.
"""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kstore.clients import AdminClient, Consumer, Producer
from kstore.clients.admin import NewTopic, ReplicaOnBroker
from kstore.errors import ErrorCode, KafkaError
from kstore.types import TopicPartition
from tests.beside.waiting import until
from tests.conformance.kstore_broker import KstoreBroker
from tests.conformance.kstore_cluster import KstoreCluster
from tests.conformance.probes.peer import Peer
from tests.faults.disks import Disk, FaultyDisk, FrozenDisk
from tests.plain_messages import Ask

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

EVERYTHING = "wsfnr"
FROZEN_S = 8.0
PATIENCE_MS = 5_000
"""Less than the disk is frozen: a broker that stands still with it fails the test."""
READER = """
import sys, threading
from kstore.log.index.environment import SharedEnvironment

def read():
    found.append(shared.look(lambda transaction: transaction.get(b"key"), None, heal=False))

def state(thread):
    with open(f"/proc/self/task/{thread.native_id}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]

found = []
shared = SharedEnvironment.acquire(sys.argv[1], read_only=False, was_closed=False)
shared.change(lambda transaction: transaction.put(b"key", b"value"))
read()
print("open", flush=True)
sys.stdin.readline()
thread = threading.Thread(target=read)
thread.start()
while state(thread) != "D":  # in the kernel, which waits for the disk
    pass
print("other threads run", flush=True)
thread.join()
print(found, flush=True)
shared.release()
"""
"""A process that reads the index twice, the second time in a thread."""


def broker_of(disk: Disk, folder: Path, *dirs: Path, **settings: str) -> KstoreBroker:
    """A broker with these log dirs that meets the disk's faults; it is not started."""
    given = {"log.dirs": ",".join(map(str, dirs))} | settings
    return KstoreBroker(folder / "broker", overrides=given, environment=disk.environment)


def broker_on(disk: Disk, folder: Path) -> KstoreBroker:
    """Its first log dir is healthy; the other one is on the disk."""
    settings = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
    return broker_of(disk, folder, folder / "healthy", disk.folder / "logs", **settings)


@pytest.fixture
def broker(tmp_path: Path, faulty_disk: FaultyDisk) -> Iterator[KstoreBroker]:
    """The same; it is not started."""
    made = broker_on(faulty_disk, tmp_path)
    yield made
    made.stop()


def lies_on(disk: Disk, topic: str) -> list[int]:
    """The partitions of a topic that are on the disk."""
    found = (disk.folder / "logs").glob(f"{topic}-*")
    return sorted(int(path.name.rpartition("-")[2]) for path in found)


def send(broker: KstoreBroker, topic: str, partition: int, value: bytes = b"value") -> int:
    """Append a record; its offset. A KafkaError if that does not go within a second or two."""
    with Producer(
        bootstrap_servers=broker.bootstrap, delivery_timeout_ms=2_000, request_timeout_ms=1_500,
        enable_idempotence=False, linger_ms=0,
    ) as producer:  # fmt: skip
        return producer.send(topic, value, partition=partition).result(30)


def leaders(admin: AdminClient, topic: str) -> list[int | None]:
    [described] = admin.describe_topics([topic])
    return [each.leader for each in described.partitions]


def in_sync(admin: AdminClient, topic: str) -> list[set[int]]:
    """The brokers with all of each partition."""
    [described] = admin.describe_topics([topic])
    return [set(each.isr) for each in described.partitions]


def deleted(peer: Peer, topic: str, partition: int) -> int:
    """The error code of DeleteRecords."""
    row = {"partition_index": partition, "offset": 0}
    request = Ask.DeleteRecords(timeout_ms=1000, topics=[{"name": topic, "partitions": [row]}])
    answer: Any = peer.ask(request, 1)
    return answer.topics[0].partitions[0].error_code


def fail(broker: KstoreBroker, disk: FaultyDisk, topic: str, partition: int) -> None:
    """Make the disk fail, and a broker notice."""
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


def test_a_moved_partition_is_served_although_its_old_log_cannot_be_removed(
    broker: KstoreBroker, faulty_disk: FaultyDisk, tmp_path: Path
) -> None:
    with broker, AdminClient(broker.bootstrap) as admin:
        admin.create_topics([NewTopic("t", 2)])
        [moved] = lies_on(faulty_disk, "t")
        assert send(broker, "t", moved) == 0
        faulty_disk.fail(errno.EACCES, "n")
        admin.alter_replica_log_dirs({ReplicaOnBroker("t", moved, 1): str(tmp_path / "healthy")})
        until(lambda: "but its old log in" in broker.error_output(), "the log says it")
        faulty_disk.thaw()
        assert send(broker, "t", moved) == 1
        new = tmp_path / "healthy" / f"t-{moved}"
        assert (new / f"{0:020d}.log").stat().st_size > 0
        assert not (new / "kstore.future").exists(), "the next start would delete it"
    shutil.rmtree(faulty_disk.folder / "logs" / f"t-{moved}")  # as the log of the broker says
    with broker:
        assert send(broker, "t", moved) == 2


def test_the_end_of_a_move_waits_for_its_disk_and_holds_nobody_else(
    broker: KstoreBroker, faulty_disk: FaultyDisk, tmp_path: Path
) -> None:
    with broker, AdminClient(broker.bootstrap) as admin:
        admin.create_topics([NewTopic("t", 2)])
        [moved] = lies_on(faulty_disk, "t")
        new = tmp_path / "healthy" / f"t-{moved}"
        assert send(broker, "t", moved) == 0
        faulty_disk.block("n")
        admin.alter_replica_log_dirs({ReplicaOnBroker("t", moved, 1): str(tmp_path / "healthy")})
        until(lambda: f"hangs: moving t-{moved} away" in broker.error_output(), "it hangs", 30)
        with Producer(
            bootstrap_servers=broker.bootstrap, delivery_timeout_ms=60_000, linger_ms=0
        ) as producer:
            waits = producer.send("t", b"value", partition=moved)
            assert [send(broker, "t", 1 - moved) for _ in range(3)] == [0, 1, 2]
            assert not waits.done, "after a crash the old log would be the partition"
            assert (new / "kstore.future").exists()
            faulty_disk.thaw()
            assert waits.result(30) == 1
        assert not (new / "kstore.future").exists()
        assert lies_on(faulty_disk, "t") == []
        assert send(broker, "t", moved) == 2


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
    with broker_of(faulty_disk, tmp_path, faulty_disk.folder / "logs") as broker:
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
    third = {"node.id": "3", "kstore.coordination.dir": str(tmp_path / "coordination")}
    dirs = tmp_path / "healthy", faulty_disk.folder / "logs"
    one = broker_of(faulty_disk, tmp_path, *dirs, **third)
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


# ---- a log dir that hangs ----


def asked(broker: KstoreBroker, ask: Callable[[AdminClient], object]) -> Callable[[], object]:
    """The request of a separate admin client, for a thread."""

    def run() -> object:
        with AdminClient(broker.bootstrap, default_api_timeout_ms=120_000) as admin:
            return ask(admin)

    return run


class Neighbour:
    """Who uses the healthy log dir: a topic's partition and a group."""

    def __init__(self, broker: KstoreBroker, topic: str, partition: int) -> None:
        self.place = TopicPartition(topic, partition)
        self.admin = AdminClient(broker.bootstrap, default_api_timeout_ms=PATIENCE_MS)
        self.producer = Producer(
            bootstrap_servers=broker.bootstrap, delivery_timeout_ms=PATIENCE_MS, linger_ms=0,
            request_timeout_ms=PATIENCE_MS - 1000,
        )  # fmt: skip
        self.consumer = Consumer(
            bootstrap_servers=broker.bootstrap, group_id="neighbours", auto_offset_reset="earliest",
            session_timeout_ms=6_000, heartbeat_interval_ms=200, default_api_timeout_ms=PATIENCE_MS,
        )  # fmt: skip
        self.sent = self.read = 0

    def join(self) -> None:
        """Be a member of the group, whose offsets are in the healthy log dir."""
        self.consumer.subscribe([self.place.topic])
        until(lambda: (self.consumer.poll(200), self.consumer.assignment())[1], "it has joined")

    def round(self) -> None:
        """Metadata, Produce, Fetch, and a commit, each answered in time."""
        [known] = self.admin.describe_topics([self.place.topic])
        assert known.name == self.place.topic
        self.producer.send(self.place.topic, b"value", partition=self.place.partition).result(5)
        self.sent += 1
        deadline = time.monotonic() + PATIENCE_MS / 1000
        while self.read < self.sent and time.monotonic() < deadline:
            polled = self.consumer.poll(200)
            self.read += sum(record.partition == self.place.partition for record in polled)
        assert self.read == self.sent
        self.consumer.commit()

    def leave(self) -> None:
        self.producer.close(1)
        self.consumer.close(1000)
        self.admin.close()


def test_a_log_dir_that_hangs_holds_back_no_other(tmp_path: Path, disk: Disk) -> None:
    with broker_on(disk, tmp_path) as broker, ThreadPoolExecutor(4) as threads:
        with AdminClient(broker.bootstrap) as admin:
            admin.create_topics([NewTopic(name, 2) for name in ("shared", "gone")])
        [frozen] = lies_on(disk, "shared")
        neighbour = Neighbour(broker, "shared", 1 - frozen)
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            producer.send("shared", b"to be deleted", partition=frozen).result(30)
        neighbour.join()
        assert not lies_on(disk, "__consumer_offsets")
        waiting: list[Future[object]] = []
        with disk.frozen():
            for ask in (
                lambda admin: admin.delete_records({TopicPartition("shared", frozen): 1}),
                lambda admin: admin.delete_topics(["gone"]),
                lambda admin: admin.create_topics([NewTopic("new", 4)]),
            ):
                waiting.append(threads.submit(asked(broker, ask)))
            end = time.monotonic() + FROZEN_S
            while time.monotonic() < end:
                neighbour.round()
            assert not any(each.done() for each in waiting)
            until(lambda: "hangs" in broker.error_output(), "the log says what hangs", 5)
            assert str(disk.folder / "logs") in broker.error_output()
        for each in waiting:
            each.result(60)
        neighbour.round()
        until(lambda: not lies_on(disk, "gone"), "the topic's logs are gone")
        until(lambda: "answers again" in broker.error_output(), "the log says that it goes on")
        neighbour.leave()


def test_writes_of_a_lone_brokers_store_that_hang_hold_only_who_asked_for_them(
    tmp_path: Path, faulty_disk: FaultyDisk
) -> None:
    dirs = faulty_disk.folder / "logs", tmp_path / "healthy"  # the store is in the first log dir
    with broker_of(faulty_disk, tmp_path, *dirs) as broker, ThreadPoolExecutor(4) as threads:
        with AdminClient(broker.bootstrap) as admin:
            admin.create_topics([NewTopic("t", 2), NewTopic("gone", 1)])
        [there] = lies_on(faulty_disk, "t")
        assert send(broker, "t", 1 - there) == 0
        with faulty_disk.frozen():
            waiting = [
                threads.submit(asked(broker, ask))
                for ask in (
                    lambda admin: admin.create_topics([NewTopic("new", 1)]),
                    lambda admin: admin.delete_topics(["gone"]),
                )
            ]
            end, sent = time.monotonic() + FROZEN_S, 0
            with AdminClient(broker.bootstrap, default_api_timeout_ms=PATIENCE_MS) as admin:
                while time.monotonic() < end:
                    [known] = admin.describe_topics(["t"])
                    assert known.name == "t"
                    sent += 1
                    assert send(broker, "t", 1 - there) == sent
            assert not any(each.done() for each in waiting)
        for each in waiting:
            each.result(60)
        assert send(broker, "new", 0) == 0


def test_a_read_of_the_index_on_a_frozen_disk_stops_no_other_thread(
    frozen_disk: FrozenDisk, tmp_path: Path
) -> None:
    """LMDB's binding keeps the GIL while a read transaction writes to the mapped lock file."""
    output = tmp_path / "output"
    command = [sys.executable, "-c", READER, str(frozen_disk.folder / "index")]
    with (
        output.open("w") as file,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=file, stderr=file) as reader,
    ):
        until(lambda: "open" in output.read_text(), "it has read once")
        with frozen_disk.frozen():
            assert reader.stdin is not None
            reader.stdin.write(b"\n")
            reader.stdin.flush()
            until(lambda: "other threads run" in output.read_text(), "they do", 30)
        assert reader.wait(30) == 0
    assert output.read_text().splitlines()[-1] == "[b'value', b'value']"
