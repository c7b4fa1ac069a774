"""broker/runtime/replication/fetchers.py and _fast/replication/replica_fetcher.pyx: what happens to
the log of a follower, with real leaders and real sockets.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kstore._fast.record.builder import build_batch
from kstore.broker.runtime.replication.fetchers import Fetchers
from kstore.broker.state.metadata.image import TopicImage
from kstore.env import SystemEnv
from kstore.errors import ErrorCode
from kstore.types import TopicPartition
from tests.beside.waiting import reached
from tests.broker.runtime.replication.replication_harness import (
    TOPIC,
    TOPIC_ID,
    Node,
    new_image,
    run,
)
from tests.reference.fault_fs import FaultyFileSystem

Story = Callable[[Node, Node], Awaitable[None]]


def run_pair(story: Story, folder: Path, partitions: int = 1, **config: Any) -> None:
    """Run a scenario with two nodes that neither lead nor follow yet."""
    settings = {name.replace("_", "."): value for name, value in config.items()}

    async def told() -> None:
        image = new_image()
        a, b = (Node(i, folder / str(i), image, partitions, **settings) for i in (1, 2))
        await a.start()
        await b.start()
        await story(a, b)
        a.stop()
        b.stop()

    run(told)


async def caught_up(leader: Node, follower: Node, index: int = 0) -> None:
    """Wait until the follower has everything and knows that it is committed."""
    led, copy = leader.partition(index), follower.partition(index)
    await reached(lambda: copy.log_end_offset == led.log_end_offset)
    await reached(lambda: led.high_watermark == led.log_end_offset)


def test_a_follower_has_the_leaders_bytes_and_its_fetches_commit_them(tmp_path: Path) -> None:
    async def story(a: Node, b: Node) -> None:
        a.append(b"before anybody follows")
        a.lead(0, 0, (1, 2), (1, 2))
        b.follow(1, 0)
        for number in range(50):
            a.append(b"%d" % number, b"x" * number)
        assert a.partition().high_watermark < a.partition().log_end_offset
        await caught_up(a, b)
        assert a.contents() == b.contents()
        # The follower learns what is committed with the next fetch that has news.
        before = a.partition().high_watermark
        a.append(b"news")
        await reached(lambda: b.partition().high_watermark >= before)
        assert b.partition().high_watermark <= b.partition().log_end_offset

    run_pair(story, tmp_path)


def test_a_partition_is_copied_while_the_others_of_its_leader_have_no_news(tmp_path: Path) -> None:
    async def story(a: Node, b: Node) -> None:
        for index in range(5):
            a.lead(0, 0, (1, 2), (1, 2), index)
            b.follow(1, 0, index)
            a.append(b"x", index=index)
            # Otherwise the fetch for the others would wait ten minutes.
            await caught_up(a, b, index)
        for index in (3, 0, 4):
            a.append(b"y", b"z", index=index)
            await caught_up(a, b, index)

    run_pair(story, tmp_path, 5, replica_fetch_wait_max_ms=600_000)


def test_a_partition_that_is_stopped_is_not_copied_any_more(tmp_path: Path) -> None:
    async def story(a: Node, b: Node) -> None:
        for index in range(2):
            a.lead(0, 0, (1, 2), (1, 2), index)
            b.follow(1, 0, index)
        b.fetchers.stop(TopicPartition(TOPIC, 0))
        a.append(b"x")
        a.append(b"y", index=1)
        await caught_up(a, b, 1)
        assert b.partition(0).log_end_offset == 0
        b.follow(1, 0, 0)
        await caught_up(a, b, 0)
        b.fetchers.stop_all()
        await reached(lambda: not a.plane.open_connections())
        b.follow(1, 0, 0)
        a.append(b"z")
        await caught_up(a, b, 0)

    run_pair(story, tmp_path, 2)


def test_a_log_that_parted_is_cut_where_its_epochs_leave_the_leaders(tmp_path: Path) -> None:
    async def story(a: Node, b: Node) -> None:
        a.lead(0, 0, (1, 2), (1, 2))
        b.follow(1, 0)
        a.append(b"1")
        a.append(b"2")
        await caught_up(a, b)
        b.fetchers.stop(TopicPartition(TOPIC, 0))
        a.append(b"only here")  # not committed
        a.append(b"neither")
        b.lead(1, 1, (1, 2), (2,))
        b.append(b"3")
        b.append(b"4")
        b.append(b"5")
        a.follow(2, 1)
        b.partition().isr_applied((1, 2), 2, 1)
        await caught_up(b, a)
        assert a.contents() == b.contents()
        assert b"only here" not in a.contents()
        assert a.partition().log.core.epochs.as_list() == [(0, 0), (1, 2)]

    run_pair(story, tmp_path)


def test_several_epochs_that_left_different_records_are_cut_step_by_step(tmp_path: Path) -> None:
    async def story(a: Node, b: Node) -> None:
        for epoch, count in ((0, 3), (1, 2), (3, 2), (5, 1)):
            a.lead(epoch, epoch, (1, 2), (1,))
            for _ in range(count):
                a.append(b"a" * (epoch + 1))
        shared, end = a.partition().log.core.read(0, 3, 1 << 20)
        assert end == 3
        b.partition().log.append_batches(shared, origin="replica")
        for epoch in (2, 4):
            b.lead(epoch, epoch, (1, 2), (2,))
            b.append(b"b" * epoch)
            b.append(b"b" * epoch)
        a.lead(6, 6, (1, 2), (1, 2))
        b.follow(1, 6)
        await caught_up(a, b)
        assert a.contents() == b.contents()
        assert b.partition().log.core.epochs.as_list() == [(0, 0), (1, 3), (3, 5), (5, 7)]

    run_pair(story, tmp_path)


@pytest.mark.parametrize("threads", [False, True], ids=["at once", "in a thread"])
def test_batches_of_a_later_epoch_than_the_follower_knows_are_not_copied(
    tmp_path: Path, threads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KAFKA-18723: a fetch that was waiting at the leader is answered after it leads in another
    epoch. What is below is copied.
    """

    async def story(a: Node, b: Node) -> None:
        b.dir.appends.calm.threads_always = threads
        later: list[int] = []
        sent_later_epoch = Fetchers.sent_later_epoch

        def note(self: Fetchers, fetcher: Any, followed: Any) -> None:
            later.append(followed.partition.log_end_offset)
            sent_later_epoch(self, fetcher, followed)

        monkeypatch.setattr(Fetchers, "sent_later_epoch", note)
        a.lead(0, 0, (1, 2), (1, 2))
        b.follow(1, 0)
        a.append(b"0")
        await caught_up(a, b)
        for epoch in (0, 3):
            batch = build_batch([b"%d" % epoch], timestamp=1)
            a.partition().log.append_batches(batch, leader_epoch=epoch)
        a.partition().notify()
        await reached(lambda: len(later) > 2)
        assert set(later) == {2}
        assert b.partition().log_end_offset == 2
        a.lead(3, 1, (1, 2), (1, 2))
        b.follow(1, 3)
        await caught_up(a, b)
        assert a.contents() == b.contents()
        assert b.partition().log.core.epochs.as_list() == [(0, 0), (3, 2)]

    run_pair(story, tmp_path)


def test_records_of_the_current_epoch_that_the_leader_lacks_are_not_cut(tmp_path: Path) -> None:
    """The epoch was begun twice: in the coordination store's older copy it had not begun yet."""

    async def story(a: Node, b: Node) -> None:
        for node, epochs in ((a, (0,)), (b, (0, 1, 1))):
            for epoch in epochs:
                batch = build_batch([b"%d" % epoch], timestamp=1)
                node.partition().log.append_batches(batch, leader_epoch=epoch)
        a.lead(1, 0, (1, 2), (1, 2))
        b.follow(1, 1)
        await reached(lambda: b.reports)
        [said] = b.reports
        assert said == (
            "t-0 is not copied: this log has records of leader epoch 1 after offset 1, where its "
            "leader 1 has none. Was the coordination store restored from an older copy? Elect "
            "another leader"
        )
        assert b.partition().log_end_offset == 3
        b.lead(2, 0, (1, 2), (1, 2))
        a.follow(2, 2)
        await caught_up(b, a)
        assert a.contents() == b.contents()

    run_pair(story, tmp_path)


def test_an_empty_follower_begins_where_its_leader_begins(tmp_path: Path) -> None:
    async def story(a: Node, b: Node) -> None:
        a.lead(0, 0, (1, 2), (1,))
        for _ in range(10):
            a.append(b"x")
        await reached(lambda: a.partition().high_watermark == 10)
        a.partition().log.delete_before(7)
        b.follow(1, 0)
        a.partition().isr_applied((1, 2), 1, 0)
        await caught_up(a, b)
        assert b.partition().log_start_offset == 7
        assert a.contents(start=7) == b.contents()
        a.partition().log.delete_before(9)
        a.append(b"y")
        await reached(lambda: b.partition().log_start_offset == 9)

    run_pair(story, tmp_path)


def test_after_an_unclean_election_a_longer_log_is_cut_to_its_leaders(tmp_path: Path) -> None:
    async def story(a: Node, b: Node) -> None:
        a.lead(0, 0, (1, 2), (1,))
        for _ in range(10):
            a.append(b"x")
        b.lead(1, 1, (1, 2), (2,))  # the follower has nothing
        a.follow(2, 1)
        await reached(lambda: a.partition().log_end_offset == 0)
        b.append(b"y")
        b.partition().isr_applied((1, 2), 2, 1)
        await caught_up(b, a)
        assert a.contents() == b.contents()

    run_pair(story, tmp_path)


def test_a_leader_that_comes_back_is_followed_again(tmp_path: Path) -> None:
    async def story(a: Node, b: Node) -> None:
        a.lead(0, 0, (1, 2), (1, 2))
        b.follow(1, 0)
        a.append(b"x")
        await caught_up(a, b)
        a.stop()
        await a.start()
        assert a.partition().high_watermark == 1
        a.lead(1, 1, (1, 2), (1, 2))
        a.append(b"y")
        await asyncio.sleep(0.01)  # it asks in epoch 0 and is refused
        assert b.partition().log_end_offset == 1
        b.follow(1, 1)
        await caught_up(a, b)
        assert a.contents() == b.contents()

    run_pair(story, tmp_path)


def test_a_follower_that_knows_of_a_leader_before_the_leader_does_tries_again(
    tmp_path: Path,
) -> None:
    async def story(a: Node, b: Node) -> None:
        b.follow(1, 4)
        await reached(lambda: a.plane.fetch.requests > 2)
        a.lead(4, 0, (1, 2), (1, 2))
        a.append(b"x")
        await caught_up(a, b)

    run_pair(story, tmp_path)


def test_a_log_that_cannot_be_written_waits_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(a: Node, b: Node) -> None:
        b.stop()
        disk = FaultyFileSystem(str(b.folder))
        b.env = SystemEnv(fs=disk)
        await b.start()
        monkeypatch.setattr("kstore.broker.runtime.replication.fetchers.DISK_PAUSE_S", 0.01)
        for index in range(2):
            a.lead(0, 0, (1, 2), (1, 2), index)
            b.follow(1, 0, index)
            a.append(b"x", index=index)
            await caught_up(a, b, index)
        disk.fail("append", errno.ENOSPC, written_bytes=10)
        a.append(b"y")
        await reached(lambda: b.reports)
        a.append(b"y", index=1)
        await caught_up(a, b, 1)
        await caught_up(a, b, 0)  # there is space again
        assert a.contents() == b.contents()
        [said] = b.reports
        assert said.startswith("t-0 can't be written")

    run_pair(story, tmp_path, 2)


def test_what_does_not_fit_is_not_appended_and_told_once(tmp_path: Path) -> None:
    async def story(a: Node, b: Node) -> None:
        a.lead(0, 0, (1, 2), (1,))
        path = a.partition().log.core.active.path
        a.append(b"good")
        a.append(b"damaged in the file")
        with open(path, "r+b") as file:
            file.seek(-3, 2)
            file.seek(a.partition().log.size_bytes - 3)
            file.write(b"!!!")
        b.follow(1, 0)
        await reached(lambda: b.reports)
        assert f"error {ErrorCode.CORRUPT_MESSAGE}" in b.reports[0]
        assert b.partition().log_end_offset == 0  # both arrived at once
        await asyncio.sleep(0.05)
        assert len(b.reports) == 1

    run_pair(story, tmp_path)


def test_with_flush_always_the_leader_hears_of_what_is_on_the_disk(tmp_path: Path) -> None:
    async def story(a: Node, b: Node) -> None:
        a.lead(0, 0, (1, 2), (1, 2))
        b.follow(1, 0)
        led = a.partition().log
        for number in range(20):
            a.append(b"%d" % number)
            a.commits.wait([(led, led.core.log_end_offset)], lambda _: None)  # as Produce does
            await caught_up(a, b)
            told = a.partition().high_watermark
            assert b.partition().log.core.durable_offset >= told

    run_pair(story, tmp_path, kstore_flush_policy="always")


def test_a_throttled_replica_that_is_behind_is_copied_at_its_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kstore.broker.runtime.replication.replica_throttles.LOOK_S", 0.01)
    monkeypatch.setattr("kstore.broker.runtime.replication.replica_throttles.LONGEST_PAUSE_S", 0.01)

    async def story(a: Node, b: Node) -> None:
        throttle = {"follower.replication.throttled.replicas": "0:2"}
        a.metadata.publish(a.image.with_topics(TopicImage(TOPIC, TOPIC_ID, (), throttle)))
        b.configs.cluster["follower.replication.throttled.rate"] = "1000"
        for index in range(2):
            a.lead(0, 0, (1, 2), (1,), index)
            for _ in range(10):
                a.append(bytes(20_000), index=index)
            b.follow(1, 0, index)
        await reached(lambda: b.partition(0).log_end_offset > 0)
        await reached(lambda: b.partition(1).log_end_offset == 10)  # the others are not slowed down
        assert b.partition(0).log_end_offset < 10
        b.configs.cluster.clear()
        await reached(lambda: b.partition(0).log_end_offset == 10)

    run_pair(story, tmp_path, 2, replica_fetch_max_bytes=50_000)


def test_a_leader_sends_at_its_rate_to_a_follower_that_is_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kstore.broker.runtime.replication.replica_throttles.LOOK_S", 0.01)

    async def story(a: Node, b: Node) -> None:
        throttle = {"leader.replication.throttled.replicas": "0:1,1:2"}
        a.metadata.publish(a.image.with_topics(TopicImage(TOPIC, TOPIC_ID, (), throttle)))
        a.configs.cluster["leader.replication.throttled.rate"] = "1000"
        await reached(lambda: a.plane.fetch.throttle is not None)
        for index in range(2):
            a.lead(0, 0, (1, 2), (1,), index)
            for _ in range(10):
                a.append(bytes(20_000), index=index)
            b.follow(1, 0, index)
        await reached(lambda: b.partition(0).log_end_offset > 0)
        await reached(lambda: b.partition(1).log_end_offset == 10)
        assert b.partition(0).log_end_offset < 10
        a.partition(0).isr_applied((1, 2), 1, 0)  # one that is in sync is not slowed down
        await reached(lambda: b.partition(0).log_end_offset == 10)
        a.configs.cluster.clear()
        await reached(lambda: a.plane.fetch.throttle is None)

    run_pair(story, tmp_path, 2, replica_fetch_max_bytes=50_000, replica_fetch_wait_max_ms=10)


def test_large_answers_in_pieces(tmp_path: Path) -> None:
    async def story(a: Node, b: Node) -> None:
        for index in range(3):
            a.lead(0, 0, (1, 2), (1, 2), index)
            for _ in range(20):
                batch = bytearray(build_batch([bytes(100_000)] * 3, timestamp=1))
                assert a.partition(index).append_batches(batch, origin=0)[0] == 0
        for index in range(3):
            b.follow(1, 0, index)
        for index in range(3):
            await caught_up(a, b, index)
            assert a.contents(index) == b.contents(index)

    run_pair(story, tmp_path, 3)
