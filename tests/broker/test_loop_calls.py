"""The file system calls of the event loop's thread, in brokers under real use: none may wait for a
disk. A library that the processes load records every call (disk_calls.c). ALLOWED lists the
permitted calls with a reason each; any other call is an error.
"""

from __future__ import annotations

import fnmatch
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kstore.clients import AdminClient, Consumer, NewTopic, Producer
from kstore.clients.admin import (
    Acl,
    AclOperation,
    AclResourceType,
    ReplicaOnBroker,
    ScramUpsertion,
    quota_entity,
)
from kstore.types import TopicPartition
from tests.beside.waiting import until
from tests.broker.api.requests.world import AUTHORIZER
from tests.conformance.kafka_broker import free_port
from tests.conformance.kstore_cluster import THREE_REPLICAS, KstoreCluster
from tests.fast.disk.dropped_pages import forget

pytestmark = [pytest.mark.slow, pytest.mark.on_disk, pytest.mark.timeout(300)]

LIBRARY_SOURCE = Path(__file__).with_name("disk_calls.c")
VALUE = b"v" * 20_000
RECORDS = 200
"""Of VALUE: several segments of 1 MiB."""
SETTINGS = {
    "log.segment.bytes": str(1 << 20),
    "log.retention.check.interval.ms": "300",
    "log.cleaner.backoff.ms": "300",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


BELIEVED_S = 0.6
"""What was found in memory is not asked for again within half a second."""


ANYWHERE, CLUSTER, LOG_DIRS = "anywhere", "cluster", "two log dirs"
SEGMENT = "*/[0-9]*.log"


class Allowed(NamedTuple):
    """Calls that the loop's thread may make below the cluster's folder."""

    name: str
    path: str
    where: str
    most_bytes: int
    reason: str


ALLOWED = (
    Allowed("cached read", SEGMENT, ANYWHERE, 1 << 31, "what is in memory is read at once"),
    Allowed(
        "pwrite", SEGMENT, ANYWHERE, 64 * 1024,
        "a small append to a calm log: a switch to a thread would cost more (DirCalm)",
    ),
    Allowed(
        "pwrite", SEGMENT, CLUSTER, 256 * 1024,
        "what a follower has fetched for a calm log: most of it comes in larger pieces",
    ),
    Allowed("write", "*/kstore.err", ANYWHERE, 0, "what the operator is told"),
)  # fmt: skip


class Call(NamedTuple):
    """One call of a loop's thread."""

    name: str
    path: str
    size_bytes: int

    def is_allowed(self, where: str) -> bool:
        """Whether a row of ALLOWED names it."""
        return any(
            self.name == row.name
            and fnmatch.fnmatch(self.path, row.path)
            and row.where in {ANYWHERE, where}
            and self.size_bytes <= row.most_bytes
            for row in ALLOWED
        )


class Watched:
    """Brokers whose loops' calls are noted while they are `used`."""

    def __init__(self, folder: Path, brokers: int, log_dirs: int) -> None:
        self.folder = folder.resolve()
        self.record = self.folder / "calls"
        self.metrics = f"http://127.0.0.1:{free_port()}"
        self.where = LOG_DIRS if log_dirs > 1 else CLUSTER if brokers > 1 else ANYWHERE
        settings = SETTINGS | AUTHORIZER
        if brokers > 1:
            settings |= THREE_REPLICAS
        else:
            settings["kstore.metrics.listener"] = self.metrics
        if log_dirs > 1:
            paths = [self.folder / f"dir{number}" for number in range(log_dirs)]
            settings["log.dirs"] = ",".join(map(str, paths))
        library = folder / "disk_calls.so"
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-O1", "-o", library, LIBRARY_SOURCE, "-ldl"], check=True
        )
        environment = {
            "LD_PRELOAD": str(library),
            "DISK_CALLS_FOLDER": str(self.folder),
            "DISK_CALLS_RECORD": str(self.record),
        }
        self.cluster = KstoreCluster(
            self.folder, brokers, overrides=settings, environment=environment
        )
        self.calls: Counter[Call] = Counter()

    def watch(self) -> None:
        self.record.touch()

    def rest(self) -> None:
        """Note none: brokers start or stop, which they may do in any thread."""
        for line in self.record.read_text().splitlines():
            name, path, size = line.split("\t")
            self.calls[Call(name, path, int(size))] += 1
        self.record.unlink()

    def is_whole(self) -> bool:
        """Whether every partition that is used has a leader, and all its replicas."""
        brokers = len(self.cluster.brokers)
        return all(
            row.leader >= 0 and len(row.isr) == brokers
            for topic in ("old", "keys", "__consumer_offsets", "__transaction_state")
            for row in self.cluster.topic(topic).partitions
        )

    def drop_pages(self) -> None:
        """Have the system forget what is in segments."""
        for path in self.folder.rglob("*.log"):
            with path.open("r+b") as file:
                forget(file.fileno())
        time.sleep(BELIEVED_S)


@pytest.fixture(params=[(1, 1), (1, 2), (3, 1)], ids=["one", "two log dirs", "three brokers"])
def watched(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Watched]:
    brokers, log_dirs = request.param
    made = Watched(tmp_path, brokers, log_dirs)
    with made.cluster:
        made.cluster.start()
        made.watch()
        yield made


# -- what is done with them


def make_topics(watched: Watched, admin: AdminClient) -> None:
    replicas = len(watched.cluster.brokers)
    admin.create_topics([
        NewTopic("old", 2, replicas, {"message.timestamp.type": "CreateTime"}),
        NewTopic("many", 30, replicas),
        NewTopic("keys", 1, replicas, {
            "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "1000",
        }),
    ])  # fmt: skip
    admin.create_partitions("many", 40)


def produce(watched: Watched, first: int) -> None:
    """Records of all sizes; record n of "old" has the timestamp first + n."""
    with Producer(watched.cluster.bootstrap, linger_ms=0) as producer:
        for number in range(RECORDS):
            producer.send("old", VALUE, partition=0, timestamp=first + number)
            producer.send("keys", VALUE, b"%d" % (number % 7))
            producer.send("many", b"small", partition=number % 30)
            if number % 10 == 0:
                producer.flush()
        producer.send("old", b"v" * 900_000, partition=1)


def transact(watched: Watched) -> None:
    """Transactions, one of them aborted."""
    settings = {"transactional.id": "mover"}
    with Producer(settings, bootstrap_servers=watched.cluster.bootstrap) as producer:
        producer.init_transactions()
        for number in range(3):
            producer.begin_transaction()
            producer.send("old", b"in a transaction", partition=1)
            if number == 1:
                producer.abort_transaction()
            else:
                producer.commit_transaction()


def consume(watched: Watched, group: str) -> int:
    """Everything of "old", as a group; how much that was."""
    with Consumer(
        watched.cluster.bootstrap, group_id=group, auto_offset_reset="earliest",
        isolation_level="read_committed", fetch_max_bytes=300_000,
    ) as consumer:  # fmt: skip
        consumer.subscribe(["old"])
        count, deadline = 0, time.monotonic() + 60
        while count < RECORDS + 3 and time.monotonic() < deadline:
            count += len(consumer.poll(500))
        consumer.commit()
    return count


def look_for_times(watched: Watched, first: int) -> None:
    with Consumer(watched.cluster.bootstrap) as consumer:
        place = TopicPartition("old", 0)
        for number in (10, RECORDS // 2, RECORDS - 10):
            found = consumer.offsets_for_times({place: first + number})[place]
            assert found.offset == number


def administer(watched: Watched, admin: AdminClient) -> None:
    """Requests that change and describe metadata, rights and limits."""
    everybody = Acl(AclResourceType.TOPIC, "old", "User:reader", AclOperation.READ)
    admin.create_acls([everybody])
    admin.alter_scram_credentials([ScramUpsertion("reader", "SCRAM-SHA-256", b"secret")])
    admin.alter_client_quotas({quota_entity(user="reader"): {"producer_byte_rate": 1e9}})
    admin.alter_configs("many", {"retention.ms": "1000000"})
    admin.alter_configs("1", {"log.cleaner.threads": "2"}, resource="broker")
    admin.describe_cluster()
    admin.describe_configs("old")
    admin.describe_log_dirs([1])
    admin.list_groups()
    admin.delete_groups(["readers"])
    if len(watched.cluster.brokers) == 1:
        with urllib.request.urlopen(f"{watched.metrics}/metrics", timeout=30) as answer:
            assert b"kstore_loop_hold" in answer.read()


def move(watched: Watched, admin: AdminClient) -> None:
    """Replicas to another log dir, or to other brokers."""
    place = TopicPartition("old", 0)
    dirs = sorted(admin.describe_log_dirs([1])[1])
    if len(dirs) > 1:
        replica = ReplicaOnBroker("old", 0, 1)
        home = next(path for path in dirs if (Path(path) / "old-0").exists())
        other = next(path for path in dirs if path != home)
        admin.alter_replica_log_dirs({replica: other})
        until(lambda: not (Path(home) / "old-0").exists(), "the replica has moved")
    if len(watched.cluster.brokers) > 1:
        admin.alter_partition_reassignments({place: [1, 2]})
        until(lambda: not admin.list_partition_reassignments(), "a replica less")
        admin.alter_partition_reassignments({place: [1, 2, 3]})
        until(lambda: not admin.list_partition_reassignments(), "a replica more")


def remove(watched: Watched, admin: AdminClient) -> None:
    """Records, by request and by retention; segments of a topic; topics."""
    logs = sorted(watched.folder.rglob("old-0/*.log"))
    admin.delete_records({TopicPartition("old", 0): RECORDS // 3})
    until(lambda: not logs[0].exists(), "the first segment is deleted")
    admin.alter_configs("old", {"retention.ms": "1000"})
    until(lambda: len(list(watched.folder.rglob("old-0/*.log"))) < len(logs) // 2, "retention")
    admin.delete_topics(["many", "keys"])
    until(lambda: not list(watched.folder.rglob("many-*")), "the folders are gone")


def test_the_loop_makes_no_call_that_may_wait_for_a_disk(watched: Watched) -> None:
    first = int(time.time() * 1000) - 60_000
    with watched.cluster.admin() as admin:
        make_topics(watched, admin)
        produce(watched, first)
        transact(watched)
        assert consume(watched, "readers") == RECORDS + 3
        look_for_times(watched, first)
        administer(watched, admin)
    watched.rest()
    for node_id in watched.cluster.brokers:
        watched.cluster.restart(node_id, kill=True)
        until(watched.is_whole, "all in sync")
    watched.drop_pages()
    watched.watch()
    with watched.cluster.admin() as admin:
        look_for_times(watched, first)
        assert consume(watched, "others") == RECORDS + 3
        watched.drop_pages()
        assert consume(watched, "third") == RECORDS + 3
        transact(watched)
        move(watched, admin)
        produce(watched, int(time.time() * 1000))
        remove(watched, admin)
    watched.rest()
    findings = [call for call in watched.calls if not call.is_allowed(watched.where)]
    assert not findings, "\n" + "\n".join(sorted(map(str, findings)))
    seen = {call.name for call in watched.calls}
    assert "cached read" in seen, "the library was not asked"
    # With several log dirs, threads do all appends: one that hangs delays no others.
    assert ("pwrite" in seen) == (watched.where != LOG_DIRS)
