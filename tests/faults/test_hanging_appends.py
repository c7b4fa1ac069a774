"""A real broker with two log dirs. One hangs, fails or is lost with the broker while appends to it
are queued. They are done once and in order, or fail together, and appends to the other log dir are
acknowledged meanwhile. Also a broker with a single log dir, whose disk hangs while its page cache
still accepts writes: a probe notices that before the loop is blocked (conftest.py fails a test if
the loop is blocked for a second).
"""

from __future__ import annotations

import errno
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kstore._fast.broker.partition import Partition, TopicEntry
from kstore._fast.log.segment_file import SegmentFile
from kstore._fast.record.builder import build_batch
from kstore.clients import AdminClient, Consumer, Producer
from kstore.clients.admin import NewTopic
from kstore.log import open_log_dir
from kstore.types import TopicPartition
from tests.beside.waiting import until
from tests.conformance.kstore_broker import KstoreBroker
from tests.faults.disks import Disk, FaultyDisk, FrozenDisk, HangingDevice
from tests.faults.test_log_dir_faults import broker_of, broker_on, lies_on

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

FROZEN_S = 4.0
PATIENCE_S = 3.0
"""Less than the disk is frozen."""
HANGS_S = 12.0
"""The journal is committed every five seconds: then writers to the page cache wait."""
PATIENCE_MS = 5_000
PAUSE_S = 1.5
"""After a second without a write the disk is asked nothing any more."""


class Sent:
    """Records that were sent to one partition, each with its own value: bulk and small ones."""

    def __init__(self, producer: Producer, topic: str, partition: int) -> None:
        self.producer, self.place = producer, TopicPartition(topic, partition)
        self.values: list[bytes] = []
        self.results: list[Any] = []

    def send(self, count: int) -> None:
        for _ in range(count):
            self._send(100_000 if len(self.values) % 5 == 1 else 20)

    def send_small(self, count: int) -> None:
        for _ in range(count):
            self._send(20)

    def _send(self, size: int) -> None:
        value = b"%d:" % len(self.values) + b"x" * size
        self.values.append(value)
        self.results.append(
            self.producer.send(self.place.topic, value, partition=self.place.partition)
        )

    def acknowledged(self) -> int:
        return sum(each.done and each.error is None for each in self.results)


def patient(broker: KstoreBroker) -> Producer:
    return Producer(
        bootstrap_servers=broker.bootstrap, linger_ms=0, batch_size=1000,
        delivery_timeout_ms=120_000, request_timeout_ms=60_000, max_request_size=1 << 20,
    )  # fmt: skip


def topic_on(broker: KstoreBroker, disk: Disk) -> tuple[int, int]:
    """Make the topic `t`; its partitions in the log dir on the disk, and in the healthy one."""
    with AdminClient(broker.bootstrap) as admin:
        admin.create_topics([NewTopic("t", 2)])
    [there] = lies_on(disk, "t")
    return there, 1 - there


def stored(broker: KstoreBroker, place: TopicPartition) -> list[bytes | None]:
    with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([place])
        end = consumer.end_offsets([place])[place]
        found: list[bytes | None] = []
        until(
            lambda: (
                found.extend(r.value for r in consumer.poll(200)) or consumer.position(place) >= end
            ),
            "all is read",
        )
        return found


def test_appends_to_a_log_dir_that_hangs_wait_and_others_do_not(tmp_path: Path, disk: Disk) -> None:
    with broker_on(disk, tmp_path) as broker:
        there, here = topic_on(broker, disk)
        with patient(broker) as waits, patient(broker) as goes_on:
            held, free = Sent(waits, "t", there), Sent(goes_on, "t", here)
            held.send(3)
            until(lambda: held.acknowledged() == 3, "the disk takes records")
            with disk.frozen():
                held.send(20)
                end = time.monotonic() + FROZEN_S
                while time.monotonic() < end:
                    free.send(5)
                    for each in free.results[-5:]:
                        each.result(PATIENCE_S)
                assert held.acknowledged() == 3
                said = f"an append to t-{there} in {disk.folder / 'logs'} has been waiting"
                until(lambda: said in broker.error_output(), "the log says what hangs")
            offsets = [each.result(60) for each in held.results]
        assert offsets == list(range(23)), "each once, in order"
        assert stored(broker, held.place) == held.values
        assert stored(broker, free.place) == free.values


def test_a_disk_that_is_full_in_the_middle_of_a_queue(
    tmp_path: Path, faulty_disk: FaultyDisk
) -> None:
    with broker_on(faulty_disk, tmp_path) as broker:
        there, _ = topic_on(broker, faulty_disk)
        with patient(broker) as producer:
            sent = Sent(producer, "t", there)
            sent.send(3)
            until(lambda: sent.acknowledged() == 3, "the disk takes records")
            faulty_disk.block("w")
            sent.send(20)
            time.sleep(0.5)
            faulty_disk.fail(errno.ENOSPC, "w")
            until(lambda: "cannot append to t-" in broker.error_output(), "it fails")
            assert sent.acknowledged() == 3
            faulty_disk.thaw()
            for each in sent.results:
                each.result(60)
        assert stored(broker, sent.place) == sent.values, "nothing twice, nothing out of order"


def test_a_broker_that_is_killed_with_appends_queued_keeps_what_it_acknowledged(
    tmp_path: Path, faulty_disk: FaultyDisk
) -> None:
    with broker_on(faulty_disk, tmp_path) as broker:
        there, _ = topic_on(broker, faulty_disk)
        with patient(broker) as producer:
            sent = Sent(producer, "t", there)
            sent.send(40)
            until(lambda: sent.acknowledged() > 10, "some are acknowledged")
            faulty_disk.block("w")
            sent.send(10)
            time.sleep(0.3)
            acknowledged = sent.acknowledged()
            broker.kill()
            faulty_disk.thaw()
            broker.start()
            found = stored(broker, sent.place)
            assert found[:acknowledged] == sent.values[:acknowledged]
            for each in sent.results:
                each.result(60)
        assert stored(broker, sent.place) == sent.values


# ---- the only log dir ----


def broker_with_one_dir(disk: Disk, folder: Path) -> KstoreBroker:
    """A broker whose only log dir is on the disk."""
    store = {"kstore.coordination.dir": str(folder / "coordination")}
    return broker_of(disk, folder, disk.folder / "logs", **store)


def send_for(seconds: float, sent: Sent, admin: AdminClient) -> None:
    """Small records, and questions that are answered meanwhile."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sent.send_small(5)
        [known] = admin.describe_topics(["t"])
        assert known.name == "t"
        time.sleep(0.02)


def test_a_device_that_hangs_below_the_only_log_dir_holds_no_loop(
    tmp_path: Path, hanging_device: HangingDevice
) -> None:
    disk = hanging_device
    with broker_with_one_dir(disk, tmp_path) as broker, patient(broker) as producer:
        with AdminClient(broker.bootstrap, default_api_timeout_ms=PATIENCE_MS) as admin:
            admin.create_topics([NewTopic("t", 1)])
            sent = Sent(producer, "t", 0)
            send_for(1.0, sent, admin)
            with disk.frozen():
                send_for(HANGS_S, sent, admin)
                said = f"the disk of {disk.folder / 'logs'} has not answered for"
                until(lambda: said in broker.error_output(), "the log says what hangs")
                waits = f"an append to t-0 in {disk.folder / 'logs'} has been waiting"
                until(lambda: waits in broker.error_output(), "the journal stands, too")
                acknowledged = sent.acknowledged()
                assert acknowledged < len(sent.results)
        offsets = [each.result(60) for each in sent.results]
        assert offsets == list(range(len(sent.values))), "each once, in order"
        until(lambda: "answers again" in broker.error_output(), "the log says that it goes on")
        assert stored(broker, sent.place) == sent.values


def test_appends_are_left_to_threads_while_the_probe_waits(
    tmp_path: Path, faulty_disk: FaultyDisk
) -> None:
    disk = faulty_disk
    with broker_with_one_dir(disk, tmp_path) as broker, patient(broker) as producer:
        with AdminClient(broker.bootstrap, default_api_timeout_ms=PATIENCE_MS) as admin:
            admin.create_topics([NewTopic("t", 1)])
            sent = Sent(producer, "t", 0)
            send_for(0.5, sent, admin)
            disk.block("p")
            send_for(2.0, sent, admin)
            said = f"the disk of {disk.folder / 'logs'} has not answered for"
            until(lambda: said in broker.error_output(), "the log says what hangs")
            until(lambda: sent.acknowledged() == len(sent.results), "the page cache takes them")
            disk.block("pw")
            send_for(3.0, sent, admin)
            assert sent.acknowledged() < len(sent.results)
            disk.thaw()
        offsets = [each.result(60) for each in sent.results]
        assert offsets == list(range(len(sent.values))), "each once, in order"
        until(lambda: "answers again" in broker.error_output(), "the log says that it goes on")
        assert stored(broker, sent.place) == sent.values


def test_the_first_append_after_a_pause_holds_no_loop_though_the_disk_hangs(
    tmp_path: Path, faulty_disk: FaultyDisk
) -> None:
    disk = faulty_disk
    with broker_with_one_dir(disk, tmp_path) as broker, patient(broker) as producer:
        with AdminClient(broker.bootstrap, default_api_timeout_ms=PATIENCE_MS) as admin:
            admin.create_topics([NewTopic("t", 1)])
            sent = Sent(producer, "t", 0)
            send_for(0.5, sent, admin)
            until(lambda: sent.acknowledged() == len(sent.results), "all are there")
            time.sleep(PAUSE_S)
            disk.block("pw")
            before = sent.acknowledged()
            send_for(2.0, sent, admin)
            assert sent.acknowledged() == before
            disk.thaw()
        offsets = [each.result(60) for each in sent.results]
        assert offsets == list(range(len(sent.values))), "each once, in order"
        assert stored(broker, sent.place) == sent.values


def test_an_append_beside_a_reservation_of_space_is_left_to_a_thread(
    frozen_disk: FrozenDisk,
) -> None:
    """The kernel makes writes to a file wait while it reserves space for it."""
    with open_log_dir(str(frozen_disk.folder / "logs")) as log_dir:
        log_dir.appends.serve(lambda _: None)  # as a broker does
        log = log_dir.log("t")
        partition = Partition(TopicEntry(b"t", bytes(16)), 0, log, leader_id=1, leader_epoch=0)
        batch = build_batch([b"x"], timestamp=1)
        asked: list[SegmentFile] = []
        log.append(b"x")
        file = log.core.active.handle_or_open()
        file.reserve_later = asked.append
        while not asked:
            log.append(b"x" * 10_000)
        assert partition.may_append_now(batch)
        with frozen_disk.frozen():
            reserves = threading.Thread(target=file.reserve_ahead)
            reserves.start()
            until(lambda: not partition.may_append_now(batch), "the thread is in the kernel")
        reserves.join()
        assert partition.may_append_now(batch)
