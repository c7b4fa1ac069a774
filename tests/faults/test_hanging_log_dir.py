"""A real broker with two log dirs, of which one stands still: what needs that one waits, all else
is answered meanwhile, the log names what hangs, and what waited is done once the disk goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from kstore.clients import AdminClient, Consumer, Producer
from kstore.clients.admin import NewTopic
from kstore.types import TopicPartition
from tests.conformance.kstore_broker import KstoreBroker
from tests.conformance.kstore_cluster import until
from tests.faults.disks import Disk

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

FROZEN_S = 8.0
PATIENCE_MS = 5_000
"""Less than the disk is frozen: a broker that stands still with it fails the test."""


@contextmanager
def broker_on(disk: Disk, folder: Path) -> Iterator[KstoreBroker]:
    """A broker whose first log dir is healthy; the other one lies on the disk."""
    dirs = folder / "healthy", disk.folder / "logs"
    settings = {
        "log.dirs": ",".join(map(str, dirs)),
        "offsets.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    broker = KstoreBroker(folder / "broker", overrides=settings, environment=disk.environment)
    with broker:
        yield broker


def lies_on(disk: Disk, topic: str) -> list[int]:
    """The partitions of a topic that lie in the log dir on the disk."""
    found = (disk.folder / "logs").glob(f"{topic}-*")
    return sorted(int(path.name.rpartition("-")[2]) for path in found)


def asked(broker: KstoreBroker, ask: Callable[[AdminClient], object]) -> Callable[[], object]:
    """What an admin client of its own asks, for a thread."""

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
        """Be a member of the group, whose offsets lie in the healthy log dir."""
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
        """End the clients."""
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
