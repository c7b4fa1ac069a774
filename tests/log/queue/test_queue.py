"""A log as a work queue, as its users see it: leases, tries, dead letters, workers, asyncio."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import kstore
from kstore.log import (
    LeaseLostError,
    Log,
    LogClosedError,
    LogStorageError,
    QueueStateError,
    ReadOnlyLogError,
)
from kstore.log.queue import QueueStats
from tests.log.handling import drain, numbers


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with kstore.open_log(tmp_path / "data", topic="mail") as opened:
        yield opened


def test_messages_come_in_order_and_once(log: Log) -> None:
    queue = log.queue("mailer")
    assert queue.put(b"0", b"key", headers=[("a", b"1")]) == 0
    assert queue.put_many(numbers(1, 100)) == 1
    first = queue.get(0)
    assert first is not None
    assert (first.value, first.key, first.headers, first.offset, first.deliveries) == (
        b"0", b"key", (("a", b"1"),), 0, 1,
    )  # fmt: skip
    assert queue.stats() == QueueStats(99, 1, 0, 0, 0, 0, 0)
    first.ack()
    assert drain(queue) == numbers(1, 100)
    assert queue.get(0) is None
    assert queue.stats() == QueueStats(0, 0, 0, 0, 100, 0, 0)


def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path) as log, log.queue("mailer") as queue:
        queue.put_many(numbers(0, 10))
        messages = queue.get_many(4, 0)
        queue.ack(*messages[:2])
    with kstore.open_log(tmp_path) as log, log.queue("mailer") as queue:
        # The closed one's leased messages can be taken again at once, and first.
        found = queue.get_many(10, 0)
        assert [(each.offset, each.deliveries) for each in found[:3]] == [(2, 2), (3, 2), (4, 1)]
        assert len(found) == 8


def test_queues_of_a_log_are_apart(log: Log) -> None:
    one, other = log.queue("one"), log.queue("other")
    one.put_many(numbers(0, 5))
    assert drain(one) == drain(other) == numbers(0, 5)
    assert log.queues() == ["one", "other"]
    log.delete_queue("one")
    assert log.queues() == ["other"]


def test_two_users_share_the_messages(log: Log, tmp_path: Path) -> None:
    log.append_many(numbers(0, 1000))
    reader = kstore.open_log(tmp_path / "data", topic="mail", read_only=True)
    queues = [log.queue("mailer"), log.queue("mailer"), reader.queue("mailer")]
    found: list[bytes | None] = []
    at = 0
    while message := queues[at % 3].get(0):
        found.append(message.value)
        message.ack()
        at += 1
    assert found == numbers(0, 1000)
    queues[0].put(b"more")
    late = queues[2].get(5)
    assert late is not None
    assert late.value == b"more"
    with pytest.raises(ReadOnlyLogError):
        queues[2].put(b"x")
    with pytest.raises(ReadOnlyLogError):
        queues[2].redrive()
    reader.close()


def test_a_lease_that_ended_is_lost(log: Log) -> None:
    queue = log.queue("mailer", lease_s=0.05)
    queue.put(b"x")
    late = queue.get(0)
    assert late is not None
    again = queue.get(5)
    assert again is not None
    assert (again.offset, again.deliveries) == (0, 2)
    for settle in (late.ack, late.nack, late.reject, late.extend):
        with pytest.raises(LeaseLostError, match="offset 0 of queue 'mailer'") as caught:
            settle()
        assert caught.value.offsets == (0,)
    again.extend(60)
    assert queue.get(0.2) is None
    again.ack()
    assert queue.stats().leases_ended == 1


def test_a_message_given_back_comes_again_after_its_delay(log: Log) -> None:
    queue = log.queue("mailer")
    queue.put_many(numbers(0, 3))
    first = queue.get(0)
    assert first is not None
    began = time.time()
    first.nack(delay_s=0.2)
    assert drain(queue) == numbers(1, 3)
    again = queue.get(10)
    assert again is not None
    assert (again.offset, again.deliveries) == (0, 2)
    assert time.time() >= began + 0.199  # never early; how late is the machine's affair


def test_after_its_tries_it_is_a_dead_letter(log: Log) -> None:
    queue = log.queue("mailer", max_deliveries=3)
    queue.put(b"poison", b"k", headers=[("h", b"v")])
    for deliveries in (1, 2, 3):
        message = queue.get(0)
        assert message is not None
        assert message.deliveries == deliveries
        message.nack(reason="it is poison")
    assert queue.get(0) is None
    queue.put(b"bad")
    with pytest.raises(RuntimeError), queue.get(0) as message:  # type: ignore[union-attr]
        raise RuntimeError("no")
    message = queue.get(0)
    assert message is not None
    message.reject("ä" * 100)
    letters = queue.dead_letters()
    assert [(each.offset, each.deliveries) for each in letters] == [(0, 3), (1, 2)]
    assert letters[0].reason == "it is poison"
    assert letters[1].reason == "ä" * 48
    assert letters[0].record is not None
    assert letters[0].record.value == b"poison"
    assert queue.stats().dead == 2
    assert queue.redrive() == 2
    assert queue.dead_letters() == []
    found = queue.get(0)
    assert found is not None
    assert (found.value, found.key, found.headers) == (b"poison", b"k", (("h", b"v"),))
    assert (found.offset, found.deliveries) == (2, 1)


def test_a_lease_that_ends_on_the_last_try_is_a_death(log: Log) -> None:
    queue = log.queue("mailer", lease_s=0.02, max_deliveries=1)
    queue.put(b"x")
    assert queue.get(0)
    assert queue.get(0.3) is None
    (letter,) = queue.dead_letters()
    assert (letter.deliveries, letter.reason) == (1, "its lease ended")


def test_what_is_done_everywhere_can_be_deleted(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path, segment_bytes=1000) as log:
        one, other = log.queue("one"), log.queue("other")
        one.put_many(numbers(0, 100))
        drain(one)
        other.ack(*other.get_many(60, 0))
        held = other.get(0)
        assert other.delete_done() == 60
        assert log.log_start_offset == 60
        assert held is not None
        held.ack()
        assert len(drain(other)) == 39


def test_dead_letters_are_not_done(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path, segment_bytes=1000) as log:
        queue = log.queue("mailer")
        queue.put_many(numbers(0, 100))
        for message in queue.get_many(100, 0):
            message.reject() if message.offset in {40, 60} else message.ack()
        assert queue.delete_done() == 40
        assert [each.record is not None for each in queue.dead_letters()] == [True, True]
        assert queue.forget_dead_letters() == 2
        assert queue.dead_letters() == []
        assert queue.delete_done() == 100
        assert queue.forget_dead_letters() == 0


def test_a_damaged_dead_letter_keeps_nothing(tmp_path: Path) -> None:
    with kstore.open_log(tmp_path, segment_bytes=1000) as log:
        queue = log.queue("mailer")
        queue.put_many(numbers(0, 100))
        for message in queue.get_many(100, 0):
            message.reject() if message.offset == 0 else message.ack()
        dead = Path(log.path) / "queue.mailer.dead"
        dead.write_bytes(bytes(dead.stat().st_size))
        assert queue.delete_done() == 100


def test_a_message_that_dies_during_a_redrive_stays(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, other = log.queue("mailer"), log.queue("mailer")
    queue.put_many(numbers(0, 3))
    first, second, _ = queue.get_many(3, 0)
    first.reject()
    append = log.append

    def append_late(*arguments: object) -> int:
        second.reject()
        return append(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(log, "append", append_late, raising=False)
    assert other.redrive() == 1
    assert [each.offset for each in queue.dead_letters()] == [1]
    monkeypatch.setattr(log, "append", append)
    assert queue.redrive() == 1
    assert queue.dead_letters() == []
    assert drain(queue) == numbers(0, 2)


def test_it_waits_while_too_many_offsets_lie_behind_one_message(log: Log) -> None:
    queue = log.queue("mailer")
    queue.put(b"slow")
    slow = queue.get(0)
    log.append_at(1 << 25, [b"later"])
    assert queue.get(0) is None
    assert queue.get(0.01) is None
    assert slow is not None
    slow.ack()
    assert drain(queue) == [b"later"]


def test_what_retention_deletes_is_lost_and_counted(log: Log) -> None:
    queue = log.queue("mailer")
    queue.put_many(numbers(0, 20))
    held = queue.get_many(5, 0)
    assert len(drain(queue)) == 15
    log.delete_before(3)
    queue.nack(*held)
    assert drain(queue) == numbers(3, 5)
    assert queue.stats().lost == 3
    queue.put_many(numbers(20, 40))
    log.delete_before(30)
    assert drain(queue) == numbers(30, 40)
    # No worker had taken those.
    assert queue.stats().lost == 3


def test_a_log_that_was_cut_off_gives_new_messages(log: Log) -> None:
    queue = log.queue("mailer")
    for value in numbers(0, 10):
        queue.put(value)
    assert len(drain(queue)) == 10
    held = [queue.put(b"x"), queue.get(0)][1]
    log.truncate(4)
    queue.put_many(numbers(50, 65))
    assert drain(queue) == numbers(50, 65)
    assert held is not None
    with pytest.raises(LeaseLostError):
        held.ack()


def test_gaps_and_many_messages_out(log: Log) -> None:
    queue = log.queue("mailer")
    log.append_many(numbers(0, 3))
    log.append_at(5000, numbers(3, 6))
    held = queue.get(0)
    assert drain(queue) == numbers(1, 6)
    log.append_many(numbers(6, 10_006))
    messages = queue.get_many(10_000, 0)
    while len(messages) < 10_000:
        messages += queue.get_many(10_000, 0)
    queue.nack(*messages[5000:])
    queue.ack(*messages[:5000])
    assert [each.value for each in queue.get_many(3, 0)] == numbers(5006, 5009)
    assert held is not None
    held.ack()


def test_threads_share_a_queue(log: Log) -> None:
    queue = log.queue("mailer")
    found: list[bytes | None] = []

    def work() -> None:
        while (message := queue.get(20)) and message.value != b"end":
            found.append(message.value)
            message.ack()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for value in numbers(0, 500):
        queue.put(value)
    queue.put_many([b"end"] * 4)
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(numbers(0, 500))


def test_asyncio(log: Log) -> None:
    queue = log.queue("mailer")

    async def work() -> list[bytes | None]:
        found = []
        assert await queue.get_async(0.01) is None
        asyncio.get_running_loop().call_later(0.05, queue.put_many, numbers(0, 3))
        async for message in queue:
            found.append(message.value)
            message.ack()
            if len(found) == 3:
                break
        return found

    assert asyncio.run(work()) == numbers(0, 3)


def test_a_child_leaves_the_parents_queue_alone(log: Log) -> None:
    queue = log.queue("mailer")
    queue.put_many(numbers(0, 2))
    held = queue.get(0)
    assert held is not None
    child = os.fork()
    if child == 0:
        try:
            queue.ack(held)
        except ValueError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    held.ack()
    assert drain(queue) == [b"1"]


@pytest.mark.parametrize("name", ["", ".", "../x", "a/b", "x.dead", ".hidden", "a" * 201, "ä"])
def test_names_that_are_no_files_are_refused(log: Log, name: str) -> None:
    with pytest.raises(ValueError, match="not a valid queue name"):
        log.queue(name)


def test_bad_numbers_are_refused(log: Log) -> None:
    for options in ({"lease_s": 0}, {"max_deliveries": 0}, {"max_deliveries": 1 << 20}):
        with pytest.raises(ValueError, match=next(iter(options))):
            log.queue("mailer", **options)  # type: ignore[arg-type]
    queue = log.queue("mailer")
    with pytest.raises(ValueError, match="limit"):
        queue.get_many(0)
    with pytest.raises(ValueError, match="delay_s"):
        queue.nack(delay_s=-1)


def test_a_damaged_state_is_told_with_what_to_do(log: Log) -> None:
    with log.queue("mailer"):
        log.append_many(numbers(0, 3))
    state = Path(log.path) / "queue.mailer"
    state.write_bytes(b"x" * 100_000)
    with pytest.raises(QueueStateError, match="Remove the file to start over"):
        log.queue("mailer")
    state.unlink()
    state.mkdir()
    with pytest.raises(LogStorageError):
        log.queue("mailer")


def test_a_closed_one_says_so(tmp_path: Path) -> None:
    log = kstore.open_log(tmp_path)
    queue = log.queue("mailer")
    other = log.queue("other")
    queue.close()
    queue.close()
    assert queue.closed
    with pytest.raises(ValueError, match="closed"):
        queue.get(0)
    log.close()
    with pytest.raises(LogClosedError):
        other.get(1)
