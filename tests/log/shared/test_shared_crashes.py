"""Several processes write to one log and are killed at random moments, also while they hold its
lock: nothing that was acknowledged is lost, nothing is there twice, every append is whole, offsets
are dense, and `kstore log verify` finds nothing. KSTORE_KILLS says how many kills (default 200).
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest

import kstore
from kstore.log.offline.verify import ExitStatus, verify
from tests.log.shared.writers import VALUE, Say, Writer, appending, batch, begin, check, contents

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("KSTORE_KILLS", "200"))
SOME = KILLS // 5
"""Of them, in `make test`; `make test-all` has the others."""
WRITERS = 3
CHECK_EACH = 20


@pytest.mark.parametrize(
    ("flush", "kills"),
    [
        ("always", SOME),
        pytest.param("always", KILLS - SOME, marks=pytest.mark.thorough),
        pytest.param("os", KILLS, marks=pytest.mark.thorough),
    ],
)
def test_what_writers_were_told_survives_their_kills(
    tmp_path: Path, flush: str, kills: int
) -> None:
    chance = random.Random(f"{flush} {kills}")
    settings = {"flush": flush, "segment_bytes": 20_000, "index_interval_bytes": 300}
    numbers = iter(range(1 << 30))
    start = acknowledged = 0
    for _ in range(max(1, kills // CHECK_EACH)):
        done: list[Writer] = []

        def new(settings: dict[str, object] = settings) -> Writer:
            number = next(numbers)
            return begin(number, appending(str(tmp_path), number, **settings))

        alive = [new() for _ in range(WRITERS)]
        for at in range(CHECK_EACH - WRITERS):
            time.sleep(chance.uniform(0.002, 0.03))
            victim = alive.pop(chance.randrange(len(alive)))
            if at % 2:  # the others may die while they open their log
                victim.has_reported()
            victim.kill()
            done.append(victim)
            alive.append(new())
        time.sleep(0.02)
        for writer in alive:
            writer.kill()
        with kstore.open_log(tmp_path) as log:
            assert log.recovery.damages == []
            start = check(log, start, done + alive)
        acknowledged += sum(len(writer.acknowledged) for writer in done + alive)
    assert acknowledged > kills // 3
    report = verify(str(tmp_path))
    assert report.exit_status == ExitStatus.GOOD, report


def killed_in_turns(
    chance: random.Random, work: Callable[[int], Callable[[Say], None]], numbers: Iterator[int]
) -> list[Writer]:
    """Writers that are killed and replaced one after the other, and all of them at the end."""
    alive = [begin(n, work(n)) for n in islice(numbers, WRITERS)]
    done: list[Writer] = []
    for _ in range(CHECK_EACH - WRITERS):
        time.sleep(chance.uniform(0.005, 0.04))
        victim = alive.pop(chance.randrange(len(alive)))
        victim.kill()
        done.append(victim)
        number = next(numbers)
        alive.append(begin(number, work(number)))
    time.sleep(0.02)
    for writer in alive:
        writer.kill()
    assert not any(writer.failure for writer in done + alive), [w.failure for w in done + alive]
    return done + alive


@pytest.mark.thorough
def test_deletions_by_keepers_that_are_killed(tmp_path: Path) -> None:
    """Only from the start, and never what was not to go."""
    chance = random.Random(3)
    settings = {"segment_bytes": 4_000, "retention_bytes": 30_000, "index_interval_bytes": 300}

    def work(number: int) -> Callable[[Say], None]:
        def append(say: Say) -> None:
            log = kstore.open_log(tmp_path, shared=True, **settings)
            for at in range(1 << 40):
                count = at % 5 + 1
                say(at, log.append_many(batch(number, at, count)).base_offset, count)
                if log.log_dir.state.keeper:  # type: ignore[attr-defined]
                    log.enforce_retention()
                    log.delete_before(min(log.log_start_offset + 5, log.high_watermark))

        return append

    numbers = iter(range(1 << 30))
    start = deleted = 0
    for _ in range(max(1, KILLS // CHECK_EACH)):
        done = killed_in_turns(chance, work, numbers)
        # Its own maintenance must not delete anything while the test reads it.
        with kstore.open_log(tmp_path, **settings | {"retention_bytes": -1}) as log:
            assert log.recovery.damages == []
            assert log.log_start_offset >= deleted
            deleted = log.log_start_offset
            found = dict(contents(log, deleted))
            assert sorted(found) == list(range(deleted, log.log_end_offset))
            assert log.log_end_offset >= start
            start = log.log_end_offset
            for writer in done:
                for who, number, first, count in writer.acknowledged:
                    if first >= deleted:
                        assert found[first] == (who, number, 0, count)
                    assert first + count <= start
    assert deleted > 0
    assert verify(str(tmp_path)).exit_status == ExitStatus.GOOD


@pytest.mark.thorough
def test_cleaning_and_cutting_by_keepers_that_are_killed(tmp_path: Path) -> None:
    """Of each key the last acknowledged record is there, and what others appended meanwhile."""
    chance = random.Random(5)
    settings = {"segment_bytes": 3_000, "cleanup_policy": "compact", "index_interval_bytes": 300}

    def work(number: int) -> Callable[[Say], None]:
        def append(say: Say) -> None:
            log = kstore.open_log(tmp_path, shared=True, **settings)
            for at in range(1 << 40):
                value = VALUE.pack(number, at, 0, 1)
                say(at, log.append(value, b"%d" % (at % 5 + 10 * number)), 1)
                if at % 20 == 19 and log.log_dir.state.keeper:  # type: ignore[attr-defined]
                    log.compact()

        return append

    numbers = iter(range(1 << 30))
    for _ in range(max(1, KILLS // CHECK_EACH)):
        done = killed_in_turns(chance, work, numbers)
        with kstore.open_log(tmp_path, **settings) as log:
            assert log.recovery.damages == []
            offsets = [record.offset for record in log.records()]
            assert offsets == sorted(set(offsets))
            found = {VALUE.unpack(record.value or b""): record for record in log.records()}
            for writer in done:
                lasts = {at % 5: (at, offset) for _, at, offset, _ in writer.acknowledged}
                for at, offset in lasts.values():
                    later = [n for who, n, _, _ in found if who == writer.number and n > at]
                    if not any(n % 5 == at % 5 for n in later):
                        assert found[writer.number, at, 0, 1].offset == offset
    assert verify(str(tmp_path)).exit_status == ExitStatus.GOOD
