"""A released message wakes a waiting worker, in any process and however the log is open there. The
test counts how often the waiter reads: its own interval is an hour here.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

import kstore
from kstore.log.queue import queue as queue_module
from kstore.log.queue.message import QueueMessage
from kstore.log.queue.queue import Queue
from tests.beside.programs import Dialogue

WORKER = """
import json, sys, kstore
folder, mode, end = sys.argv[1:]
log = kstore.open_log(folder, **json.loads(mode))
queue = log.queue("mailer", lease_s=600)
message = queue.get(timeout=0)
print("got", flush=True)
sys.stdin.readline()
exec(end)
print("done", flush=True)
sys.stdin.readline()
"""
EXCLUSIVE, SHARED, READ_ONLY = "{}", '{"shared": true}', '{"read_only": true}'
OPEN = {EXCLUSIVE: {}, SHARED: {"shared": True}, READ_ONLY: {"read_only": True}}


def worker(folder: Path, mode: str, end: str) -> Dialogue:
    """Another process, which has the message and does `end` with it on command."""
    process = Dialogue([sys.executable, "-c", WORKER, str(folder), mode, end])
    assert process.line() == "got"
    return process


def count_looks(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Has an item for each time that the queue looks for a message."""
    looks: list[int] = []
    take = queue._take

    def counted(limit: int) -> list[object]:
        looks.append(limit)
        return list(take(limit))

    monkeypatch.setattr(queue, "_take", counted)
    return looks


@pytest.mark.quick_one_in(5)
@pytest.mark.parametrize(
    ("here", "there", "end"),
    [
        (EXCLUSIVE, READ_ONLY, "message.nack()"),
        (EXCLUSIVE, READ_ONLY, "queue.close()"),
        (READ_ONLY, EXCLUSIVE, "message.nack(delay_s=0.05)"),
        (SHARED, SHARED, "message.nack()"),
        (SHARED, READ_ONLY, "message.nack()"),
    ],
)
def test_a_message_given_back_wakes_who_waits_in_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: str, there: str, end: str
) -> None:
    monkeypatch.setattr(queue_module, "IDLE_LOOK_SECONDS", 3600.0)
    with kstore.open_log(tmp_path) as log, log.queue("mailer") as queue:
        queue.put(b"welcome")
    with (
        worker(tmp_path, there, end) as process,
        kstore.open_log(tmp_path, **OPEN[here]) as log,
        log.queue("mailer", lease_s=600) as queue,
    ):
        looks = count_looks(queue, monkeypatch)
        found: list[QueueMessage | None] = []
        waiter = threading.Thread(target=lambda: found.append(queue.get(3600)), daemon=True)
        waiter.start()
        while not queue._table.watched:
            time.sleep(0.001)
        assert queue._table.wake_ups == 0
        assert process.does("") == "done"
        waiter.join(60)
        assert [message and message.value for message in found] == [b"welcome"]
        assert queue._table.wake_ups == 1
        assert len(looks) == 2  # before it waited, and when it was woken


def test_a_new_message_wakes_who_waits_beside_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_module, "IDLE_LOOK_SECONDS", 3600.0)
    with kstore.open_log(tmp_path) as log, log.queue("mailer") as queue:
        looks = count_looks(queue, monkeypatch)
        found: list[QueueMessage | None] = []
        waiter = threading.Thread(target=lambda: found.append(queue.get(3600)), daemon=True)
        waiter.start()
        while not queue._table.watched:
            time.sleep(0.001)
        queue.put(b"welcome")
        waiter.join(60)
        assert [message and message.value for message in found] == [b"welcome"]
        assert len(looks) == 2


def test_where_files_cannot_be_watched_it_is_looked_at_every_few_milliseconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kstore.open_log(tmp_path) as log, log.queue("mailer") as queue:
        monkeypatch.setattr(log._waiters, "_watch", lambda: None)
        queue.put(b"welcome")
        message = queue.get(timeout=0)
        assert message is not None
        found: list[QueueMessage | None] = []
        waiter = threading.Thread(target=lambda: found.append(queue.get(3600)), daemon=True)
        waiter.start()
        while not queue._table.watched:
            time.sleep(0.001)
        message.nack()
        waiter.join(60)
        assert [each and each.deliveries for each in found] == [2]
