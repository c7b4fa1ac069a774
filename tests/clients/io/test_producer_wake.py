"""The sender can run at any call of Python: no record may be half sent at that point."""

from __future__ import annotations

from typing import Any

from kstore._fast.clients.accumulator import Accumulator
from kstore._fast.clients.send_path import SendPath

TOPIC = "t"


class Intruder:
    """A sender that takes all there is at each wake, at once: as its thread may."""

    def __init__(self, batch_size: int = 300, **settings: Any) -> None:
        self.accumulator = Accumulator(
            batch_size=batch_size, memory_bytes=1 << 20, max_request_size=1 << 20, **settings
        )
        self.accumulator.set_partitions(TOPIC, 2)
        self.accumulator.wake = self.take
        self.path = SendPath()
        self.path.attach(self.accumulator, True)
        self.counts: list[int] = []

    def take(self) -> None:
        self.accumulator.woken = self.accumulator.timed = False
        for queue in self.accumulator.queues(TOPIC):
            while (batch := self.accumulator.take(queue)) is not None:
                self.counts.append(batch.count)
                batch.complete(0)

    def send(self, key: bytes | None = None) -> bool:
        made = self.path.append(TOPIC, b"v" * 50, key, None, None, None, None, None)
        return made is not None


def test_a_batch_that_wakes_the_sender_has_its_record() -> None:
    one = Intruder()
    assert all(one.send(b"%d" % number) for number in range(50))
    one.take()
    assert min(one.counts) > 0
    assert sum(one.counts) == 50


def test_many_at_once_too() -> None:
    one = Intruder()
    values: list[Any] = [b"v" * 50] * 200
    assert one.path.append_many(TOPIC, values, None, -1, None, 0, 1, []) == len(values)
    one.take()
    assert min(one.counts) > 0
    assert sum(one.counts) == len(values)


def test_a_topic_that_is_closed_meanwhile_takes_no_record() -> None:
    """It grows: partitions that were chosen under the old count are chosen again (KIP-253)."""
    one: Intruder

    def choose(topic: str, key: Any, value: Any, count: int) -> int:
        one.accumulator.set_partitions(TOPIC, 0)
        return 1

    one = Intruder(chooser=choose)
    assert not one.send(b"k")
    one.accumulator.set_partitions(TOPIC, 3)
    one.take()
    assert one.counts == []


def test_many_at_once_stop_where_the_topic_is_closed() -> None:
    one = Intruder()

    def close() -> None:
        one.take()
        one.accumulator.set_partitions(TOPIC, 0)

    one.accumulator.wake = close
    values: list[Any] = [b"v" * 50] * 200
    taken = one.path.append_many(TOPIC, values, None, -1, None, 0, 1, [])
    assert 0 < taken < len(values)
    one.take()
    assert sum(one.counts) == taken
