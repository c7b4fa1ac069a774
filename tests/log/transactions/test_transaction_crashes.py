"""kill -9 at random moments of processes that append to three logs at once, and to single ones:
each transaction is in all of its logs or in none, and in all if it was acknowledged. KSTORE_KILLS
is the number of kills (default 200).
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kstore.log import open_log_dir
from kstore.log.offline.verify import ExitStatus, verify
from tests.log.shared.writers import VALUE, Writer, begin

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("KSTORE_KILLS", "200"))
SOME = KILLS // 5
"""Of them, in `make test`; `make test-all` has the others."""
CHECK_EACH = 20
LOGS = ("a", "b", "c")
SINGLE = -1
"""As the number of a record's place in its transaction: it is in none."""


def transacting(
    path: str, number: int, *, shared: bool, flush: str
) -> Callable[[Callable[[int, int, int], None]], None]:
    """Work: transactions over two or three logs, and single appends between them."""

    def work(say: Callable[[int, int, int], None]) -> None:
        logs = open_log_dir(path, shared=shared, flush=flush, segment_bytes=8_000)
        opened = [logs.log(name) for name in LOGS]
        for at in range(1 << 40):
            used = opened[at % 2 :]
            with logs.transaction() as t:
                for place, log in enumerate(used):
                    many = [VALUE.pack(number, at, place, len(used)) + b"." * (at % 40)] * 2
                    t.append_many(log, many)
            say(at, t.result(used[0]).base_offset, len(used))
            opened[at % 3].append(VALUE.pack(number, at, SINGLE, 0))

    return work


def check(path: str, writers: list[Writer]) -> None:
    """Each transaction is whole, or not there; what was acknowledged is."""
    with open_log_dir(path) as logs:
        found: dict[tuple[int, int], list[int]] = {}
        for name in LOGS:
            log = logs.log(name)
            assert log.recovery.damages == []
            records = [VALUE.unpack((r.value or b"")[: VALUE.size]) for r in log.records()]
            assert log.log_end_offset == len(records)
            for who, at, place, of in records:
                if place != SINGLE:
                    found.setdefault((who, at), []).append(place)
                    assert of == 3 - at % 2
    for (who, at), places in found.items():
        assert sorted(places) == sorted([*range(3 - at % 2)] * 2), (who, at)
    for writer in writers:
        assert not writer.failure, writer.failure
        for who, at, _first, _logs in writer.acknowledged:
            assert (who, at) in found


@pytest.mark.parametrize(
    ("shared", "flush", "kills"),
    [
        (False, "os", SOME),
        pytest.param(False, "os", KILLS - SOME, marks=pytest.mark.thorough),
        pytest.param(True, "os", KILLS, marks=pytest.mark.thorough),
        pytest.param(True, "always", KILLS, marks=pytest.mark.thorough),
    ],
)
def test_transactions_are_whole_after_kills(
    tmp_path: Path, shared: bool, flush: str, kills: int
) -> None:
    chance = random.Random(f"{shared} {flush} {kills}")
    numbers = iter(range(1 << 30))
    acknowledged = 0
    done: list[Writer] = []

    def new() -> Writer:
        number = next(numbers)
        work = transacting(str(tmp_path), number, shared=shared, flush=flush)
        return begin(number, work)

    for _ in range(max(1, kills // CHECK_EACH)):
        alive = [new() for _ in range(3 if shared else 1)]
        for at in range(CHECK_EACH - len(alive)):
            time.sleep(chance.uniform(0.01, 0.05))
            victim = alive.pop(chance.randrange(len(alive)))
            if at % 2:  # the others may die while they open their logs
                victim.has_reported()
            victim.kill()
            done.append(victim)
            alive.append(new())
        for writer in alive:
            writer.kill()
        done += alive
        check(str(tmp_path), done)
    acknowledged = sum(len(writer.acknowledged) for writer in done)
    assert acknowledged > kills // 3
    assert verify(str(tmp_path)).exit_status == ExitStatus.GOOD
