"""Workers killed with -9 at any moment: no message is lost, none is with two workers at once, and
its deliveries are counted right. KSTORE_QUEUE_KILLS sets the number of kills.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import time
import traceback
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

import kstore
from kstore.log.queue import QueueStats
from tests.beside.waiting import until

KILLS = int(os.environ.get("KSTORE_QUEUE_KILLS", "300"))
SOME = KILLS // 5
"""Of them, in `make test`; `make test-all` has the others."""
WORKERS = 3
MESSAGES_A_KILL = 13
EVENT = struct.Struct("=cqqq")
"""G (got), N (will be given back), D (acknowledged); offset, deliveries, nanoseconds."""


def work(folder: Path, name: str, seed: int) -> None:
    """Take and settle messages, and write down what was done. Ends when it is killed."""
    draw = random.Random(seed)
    events = os.open(folder / f"{name}.events", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(kind: bytes, offset: int, deliveries: int) -> None:
        os.write(events, EVENT.pack(kind, offset, deliveries, time.monotonic_ns()))

    log = kstore.open_log(folder / "data", read_only=True)
    queue = log.queue("mailer", lease_s=600, max_deliveries=1000)
    while True:
        messages = queue.get_many(draw.choice([1, 1, 3, 20]), 1)
        for message in messages:
            note(b"G", message.offset, message.deliveries)
        for message in messages:
            if draw.random() < 0.1:
                note(b"N", message.offset, message.deliveries)
                message.nack(delay_s=draw.choice([0, 0.01]))
            else:
                message.ack()
                note(b"D", message.offset, message.deliveries)


def start(folder: Path, name: str, seed: int) -> int:
    """A worker's process, forked: it begins within a millisecond."""
    child = os.fork()
    if child == 0:
        try:
            work(folder, name, seed)
        except BaseException:  # noqa: BLE001 (a forked child has nobody to raise it to)
            traceback.print_exc()
        finally:
            os._exit(1)
    return child


def kill(child: int) -> None:
    """As the system's memory killer does."""
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize("kills", [SOME, pytest.param(KILLS - SOME, marks=pytest.mark.thorough)])
def test_killed_workers_lose_and_double_nothing(tmp_path: Path, kills: int) -> None:
    messages = kills * MESSAGES_A_KILL
    seed = random.SystemRandom().randrange(2**32)
    draw = random.Random(seed)
    names = iter(range(10**6))
    kstore.open_log(tmp_path / "data").close()
    workers = [start(tmp_path, f"w{next(names)}", seed + each) for each in range(WORKERS)]
    with kstore.open_log(tmp_path / "data") as log:
        queue = log.queue("mailer", lease_s=600, max_deliveries=1000)
        for number in range(kills):
            queue.put_many([b"%d" % each for each in range(MESSAGES_A_KILL)])
            time.sleep(draw.random() * 0.02)
            place = draw.randrange(WORKERS)
            kill(workers[place])
            workers[place] = start(tmp_path, f"w{next(names)}", seed + WORKERS + number)
        until(lambda: not is_busy(queue.stats()), "the workers have done everything", 120)
        for child in workers:
            kill(child)
        stats = queue.stats()
        assert (stats.leased, stats.waiting, stats.ready, stats.dead) == (0, 0, 0, 0), seed
        assert stats.acknowledged == messages, seed
    check(tmp_path, seed, messages, kills)


def is_busy(now: QueueStats) -> bool:
    return bool(now.leased or now.waiting or now.ready)


def check(folder: Path, seed: int, messages: int, kills: int) -> None:
    """What the workers wrote down fits what a queue promises."""
    got: dict[int, list[tuple[int, int]]] = defaultdict(list)
    done: dict[int, int] = {}
    last: dict[tuple[int, int], int] = {}
    for path in folder.glob("*.events"):
        for kind, offset, deliveries, at in EVENT.iter_unpack(path.read_bytes()):
            last[offset, deliveries] = max(at, last.get((offset, deliveries), 0))
            if kind == b"G":
                got[offset].append((deliveries, at))
            elif kind == b"D":
                assert offset not in done, f"{offset} was done twice; seed {seed}"
                done[offset] = deliveries
    unseen = 0
    for offset, given in got.items():
        rows = sorted(given)
        numbers = [deliveries for deliveries, _ in rows]
        assert len(set(numbers)) == len(numbers), f"{offset} was given twice as one; seed {seed}"
        for (deliveries, _), (_, next_at) in pairwise(rows):
            # The previous worker does nothing with it any more.
            assert last[offset, deliveries] <= next_at, f"{offset} with two; seed {seed}"
        if offset in done:
            assert done[offset] == numbers[-1], f"{offset} after it was done; seed {seed}"
        unseen += numbers[-1] - len(numbers)
    assert len(got) == messages, seed
    # A delivery that no worker recorded was interrupted by a kill.
    assert unseen <= (kills + WORKERS) * 20, seed
