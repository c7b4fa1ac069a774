"""A real broker with two log dirs. One stands still, fails or is lost with the broker while
appends to it are queued: they are done once and in order, or fail together, and those to the other
log dir are acknowledged meanwhile.
"""

from __future__ import annotations

import errno
import time
from pathlib import Path
from typing import Any

import pytest

from kstore.clients import AdminClient, Consumer, Producer
from kstore.clients.admin import NewTopic
from kstore.types import TopicPartition
from tests.conformance.kstore_broker import KstoreBroker
from tests.conformance.kstore_cluster import until
from tests.faults.disks import Disk, FaultyDisk
from tests.faults.test_log_dir_faults import broker_on, lies_on

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

FROZEN_S = 4.0
PATIENCE_S = 3.0
"""Less than the disk is frozen."""


class Sent:
    """Records that were sent to one partition, each with its own value: bulk and small ones."""

    def __init__(self, producer: Producer, topic: str, partition: int) -> None:
        self.producer, self.place = producer, TopicPartition(topic, partition)
        self.values: list[bytes] = []
        self.results: list[Any] = []

    def send(self, count: int) -> None:
        for _ in range(count):
            number = len(self.values)
            value = b"%d:" % number + b"x" * (100_000 if number % 5 == 1 else 20)
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
                until(lambda: said in broker.error_output(), "the log says what hangs", 5)
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
