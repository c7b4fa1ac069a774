"""broker/state/replication/follower.py: the truncation offset, compared with logs that are written
record by record; where a leader truncates at damage; and how long a follower waits.
"""

from __future__ import annotations

import itertools
import random

import pytest

from kstore._fast.log.epoch_cache import EpochCache
from kstore.broker.state.replication.follower import (
    BackOff,
    Cut,
    cut_at_damage,
    cut_at_divergence,
    cut_out_of_range,
    names_replica,
    nobody_has,
)


def cache_of(epochs: list[int]) -> EpochCache:
    """The epoch cache of a log whose records are of these epochs."""
    cache = EpochCache()
    for offset, epoch in enumerate(epochs):
        cache.assign_epoch(epoch, offset)
    return cache


def leaders_answer(epochs: list[int], asked: int) -> tuple[int, int]:
    """(largest epoch not above the asked one, where it ends) of a leader in a later epoch."""
    known = [epoch for epoch in epochs if epoch <= asked]
    if not known:
        return asked, 0
    newest = max(known)
    return newest, max(at for at, epoch in enumerate(epochs) if epoch == newest) + 1


def cut_until_it_fits(mine: list[int], leaders: list[int]) -> tuple[list[int], int]:
    """What is left of a log after the exchange with its leader, and how many cuts it took."""
    cuts = 0
    while mine:
        answer = leaders_answer(leaders, mine[-1])
        if answer[0] == mine[-1] and answer[1] >= len(mine):
            break  # what the fetch finds: it does not diverge
        own = cache_of(mine).end_offset_for(answer[0], len(mine))
        cut = cut_at_divergence(own, answer, 0, len(mine))
        assert not cut.restart
        assert cut.offset < len(mine), "a cut that cuts nothing would go on for ever"
        mine = mine[: cut.offset]
        cuts += 1
    return mine, cuts


def replicas_after(seed: int) -> list[list[int]]:
    """Three logs (each record's epoch) after random leaders wrote and followers cut the rest."""
    chance = random.Random(seed)
    logs: list[list[int]] = [[], [], []]
    for epoch in range(chance.randint(1, 8)):
        leader = chance.randrange(3)
        logs[leader] += [epoch] * chance.randint(0, 4)
        for follower in range(3):
            if follower != leader and chance.random() < 0.5:
                kept, _ = cut_until_it_fits(logs[follower], logs[leader])
                reached = chance.randint(len(kept), len(logs[leader]))
                logs[follower] = kept + logs[leader][len(kept) : reached]
    return logs


def test_a_log_is_cut_to_exactly_what_it_shares_with_its_leader() -> None:
    for seed in range(300):
        logs = replicas_after(seed)
        for mine, leaders in itertools.product(logs, logs):
            shared = 0
            while shared < min(len(mine), len(leaders)) and mine[shared] == leaders[shared]:
                shared += 1
            left, cuts = cut_until_it_fits(mine, leaders)
            assert left == mine[:shared], f"seed {seed}"
            assert cuts <= len(set(mine)) + 1, f"seed {seed}"


def test_a_log_that_lacks_the_leaders_epoch_is_cut_at_its_next_smaller_one() -> None:
    own = cache_of([0, 0, 2, 2, 4]).end_offset_for(3, 5)
    assert own == (2, 4)
    assert cut_at_divergence(own, (3, 9), 0, 5) == Cut(4)


def test_a_log_without_epochs_is_cut_at_the_leaders_end() -> None:
    assert cut_at_divergence((-1, -1), (3, 7), 0, 9) == Cut(7)
    assert cut_at_divergence((-1, -1), (3, 12), 0, 9) == Cut(9)


def test_below_its_start_nothing_of_a_log_stays() -> None:
    assert cut_at_divergence((3, 9), (3, 4), 5, 9) == Cut(4, restart=True)
    assert cut_at_divergence((3, 9), (3, 5), 5, 9) == Cut(5)


def test_out_of_range_above_the_leaders_end_and_below_its_start() -> None:
    assert cut_out_of_range(10, (0, 7)) == Cut(7)
    assert cut_out_of_range(10, (12, 20)) == Cut(12, restart=True)
    assert cut_out_of_range(10, (3, 20)) == Cut(10)  # it is in range again


def test_pauses_double_up_to_the_longest_and_begin_anew_after_a_quiet_time() -> None:
    pauses = BackOff(0.01, 0.05)
    assert [pauses.pause_s(100.0) for _ in range(5)] == [0.01, 0.02, 0.04, 0.05, 0.05]
    assert pauses.pause_s(100.05) == 0.05
    assert pauses.pause_s(100.2) == 0.01


def test_a_throttled_replica_is_named_by_partition_and_broker_or_all_are() -> None:
    assert names_replica(["*"], 3, 1)
    assert names_replica(["0:1", "3:1"], 3, 1)
    assert not names_replica(["0:1", "3:2"], 3, 1)
    assert not names_replica([], 3, 1)


@pytest.mark.parametrize(
    ("damaged", "ends", "offset"),
    [
        ([56], [56, 56], 56),
        ([56], [50, 56], 56),
        ([56], [50, -1], 56),
        ([56], [57, 50], None),  # one has it
        ([56], [56, None], None),  # one may have it
        ([56], [None, None], None),
        ([49], [49, 49], None),  # it is committed
        ([50], [50, 50], 50),
        ([49, 56], [49, 49], 56),
        ([54, 56], [54, 50], 54),
        ([54, 56], [56, 50], 56),  # one has the first
        ([54, 56], [57, 50], None),
        ([], [50, 50], None),
    ],
)
def test_a_leader_cuts_only_what_is_not_committed_and_no_other_replica_has(
    damaged: list[int], ends: list[int | None], offset: int | None
) -> None:
    assert cut_at_damage(damaged, 50, ends) == offset


@pytest.mark.parametrize(
    ("ends", "has_none", "lost"),
    [
        ([40, 12], [False, False], True),
        ([41, 12], [False, False], False),
        ([41, 12], [True, False], True),
        ([40, None], [False, False], False),
        ([40, None], [False, True], True),
        ([90, 90], [True, False], False),
    ],
)
def test_a_part_is_lost_when_all_others_end_before_it_or_have_none_of_it(
    ends: list[int | None], has_none: list[bool], lost: bool
) -> None:
    assert nobody_has(40, ends, has_none) is lost
