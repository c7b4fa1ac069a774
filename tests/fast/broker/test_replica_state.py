"""The high watermark of a replicated partition, compared with a model: it is the least log end
offset of the replicas that are in sync or proposed, and never decreases. Each waiter is notified
once, in order. Followers are fetches on connections.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kstore._fast.record.builder import build_batch
from kstore.errors import ErrorCode
from kstore.protocol.logs.fetch import PartitionData
from tests.broker.harness.plane_harness import NODE_ID, TOPIC_ID, Client, Plane
from tests.fast.broker.test_fetch_path import append
from tests.record_requests import fetch_request, only

FOLLOWERS = (6, 7, 8)
REPLICAS = (NODE_ID, *FOLLOWERS)
LAG_MS = 1000


class Leader(Plane):
    """Partition 0 of `t`, led here in epoch 3 with three followers; time is the test's."""

    def __init__(self, folder: Path, isr: tuple[int, ...] = REPLICAS, flush: str = "os") -> None:
        super().__init__(folder, flush=flush)
        self.now_ms = 50_000
        self.table.replication.clock = lambda: self.now_ms
        self.table.replication.max_lag_ms = LAG_MS
        self.proposed: list[tuple[int, ...]] = []
        self.table.on_isr_change = lambda partition, isr: self.proposed.append(isr)
        self.clients = {node: self.client() for node in FOLLOWERS}
        self.led = self.partition()
        self.led.lead(3, 1, REPLICAS, isr)

    def fetch_by(self, node: int, offset: int, *, epoch: int = -1) -> PartitionData:
        """What a follower is answered that asks for the records from an offset on."""
        return fetched(self.clients[node], node, offset, epoch)

    def offset_of(self, node: int) -> int:
        follower = self.led.replication.follower(node)
        return follower.log_end_offset


def fetched(client: Client, node: int, offset: int, epoch: int = -1) -> PartitionData:
    asked = fetch_request(TOPIC_ID, offset, node=node, epoch=epoch)
    return only(client.call(16, asked))


@pytest.fixture
def leader(tmp_path: Path):
    leader = Leader(tmp_path)
    yield leader
    leader.close()


# ---- single rules ----


def test_the_slowest_in_sync_replica_holds_the_high_watermark(leader: Leader) -> None:
    append(leader, 5)
    for node, offset in zip(FOLLOWERS, (5, 3, 4), strict=True):
        assert leader.led.high_watermark == 0
        leader.fetch_by(node, offset)
    assert leader.led.high_watermark == 3
    leader.fetch_by(7, 5)
    assert leader.led.high_watermark == 4


def test_the_answer_tells_the_high_watermark_that_its_fetch_has_moved(leader: Leader) -> None:
    append(leader, 5)
    leader.fetch_by(6, 5)
    leader.fetch_by(7, 5)
    assert leader.fetch_by(8, 5).high_watermark == 5


def test_a_follower_has_all_where_the_leader_goes_on_behind_lost_records(leader: Leader) -> None:
    append(leader, 5)
    for node in FOLLOWERS:
        leader.fetch_by(node, 5)
    log = leader.led.log
    log.local.begin_segment(20)
    log.core.set_offsets(0, 20, 5)
    for node in FOLLOWERS:
        leader.fetch_by(node, 5)
    assert leader.led.high_watermark == 20
    append(leader, 1)
    assert leader.fetch_by(6, 5).records
    assert leader.led.high_watermark == 20
    for node in FOLLOWERS:
        leader.fetch_by(node, 21)
    assert leader.led.high_watermark == 21


def test_with_flush_always_the_leaders_own_tail_holds_the_high_watermark(tmp_path: Path) -> None:
    leader = Leader(tmp_path, flush="always")
    asked: list[tuple[object, int]] = []
    leader.table.on_unsynced = asked.extend
    append(leader, 5)
    for node in FOLLOWERS:
        leader.fetch_by(node, 5)
    told: list[int] = []
    leader.led.when_committed(5, told.append)
    leader.loop.turn()
    assert (leader.led.high_watermark, told) == (0, [])
    assert asked == [(leader.led.log, 5)]
    leader.led.log.sync_until(5)
    leader.loop.turn()
    assert (leader.led.high_watermark, told) == (5, [0])
    leader.close()


def copied_three(tmp_path: Path) -> Leader:
    """A follower, as yet, with three records that are not synced."""
    made = Leader(tmp_path, flush="always")
    made.led.follow(6, 4)
    made.led.log.core.append_buffer(bytearray(build_batch([b"v"] * 3, timestamp=1)), 4, "replica")
    return made


def test_with_flush_always_a_new_leader_syncs_what_it_copied(tmp_path: Path) -> None:
    leader = copied_three(tmp_path)
    led = leader.led
    led.take_high_watermark(3)
    assert led.high_watermark == 0
    asked: list[tuple[object, int]] = []
    leader.table.on_unsynced = asked.extend
    led.lead(5, 2, REPLICAS, (NODE_ID,))
    leader.loop.turn()
    assert asked == [(led.log, 3)]
    leader.close()


def test_with_flush_always_a_follower_shows_what_is_on_its_disk(tmp_path: Path) -> None:
    leader = copied_three(tmp_path)
    led = leader.led
    led.take_high_watermark(2)
    assert led.high_watermark == 0
    led.log.sync_until(3)
    leader.loop.turn()
    assert led.high_watermark == 2
    leader.close()


def test_a_follower_that_lost_its_tail_does_not_take_the_high_watermark_back(
    leader: Leader,
) -> None:
    append(leader, 5)
    for node in FOLLOWERS:
        leader.fetch_by(node, 5)
    leader.fetch_by(6, 2)
    assert (leader.led.high_watermark, leader.offset_of(6)) == (5, 2)
    append(leader, 1)
    for node in FOLLOWERS[1:]:
        leader.fetch_by(node, 6)
    assert leader.led.high_watermark == 5


def test_nobody_is_proposed_before_the_leaders_epoch_begins(tmp_path: Path) -> None:
    leader = Leader(tmp_path, isr=(NODE_ID, 6))
    append(leader, 4)
    leader.led.lead(4, 2, REPLICAS, (NODE_ID, 6))  # its epoch begins at 4, nothing is committed
    leader.fetch_by(7, 3)
    assert leader.proposed == []
    leader.fetch_by(7, 4)
    assert leader.proposed == [(NODE_ID, 6, 7)]
    leader.close()


def test_a_proposed_replica_holds_the_high_watermark_until_it_is_refused(tmp_path: Path) -> None:
    leader = Leader(tmp_path, isr=(NODE_ID, 6))
    leader.now_ms += LAG_MS + 1
    leader.fetch_by(7, 0)
    assert leader.proposed == [(NODE_ID, 6, 7)]
    append(leader, 2)
    leader.fetch_by(6, 2)
    assert leader.led.high_watermark == 0
    leader.now_ms += LAG_MS + 1  # and it is no longer near enough to be waited for
    leader.led.isr_refused()
    assert leader.led.high_watermark == 2
    leader.close()


def test_a_shrinking_isr_counts_in_full_until_it_is_agreed(leader: Leader) -> None:
    append(leader, 2)
    for node in (6, 7):
        leader.fetch_by(node, 2)
    leader.now_ms += LAG_MS + 1
    for node in (6, 7):
        leader.fetch_by(node, 2)
    assert leader.led.shrink_candidates(leader.now_ms, LAG_MS) == [8]
    assert leader.led.propose_isr((NODE_ID, 6, 7))
    assert not leader.led.propose_isr((NODE_ID, 6))
    assert leader.led.shrink_candidates(leader.now_ms, LAG_MS) == []
    assert leader.led.high_watermark == 0
    assert leader.led.isr_applied((NODE_ID, 6, 7), 2, 3)
    assert (leader.led.high_watermark, leader.led.isr) == (2, (NODE_ID, 6, 7))
    assert (leader.table.isr_shrinks, leader.table.isr_expands) == (1, 0)
    assert leader.led.isr_applied((NODE_ID, 6, 7, 8), 3, 3)
    assert (leader.table.isr_shrinks, leader.table.isr_expands) == (1, 1)


@pytest.mark.parametrize(("version", "epoch"), [(1, 3), (0, 3), (2, 2), (2, 4)])
def test_old_news_of_the_isr_change_nothing(leader: Leader, version: int, epoch: int) -> None:
    assert not leader.led.isr_applied((NODE_ID,), version, epoch)
    assert leader.led.isr == REPLICAS


def test_a_repeated_order_to_lead_keeps_the_proposal(tmp_path: Path) -> None:
    leader = Leader(tmp_path, isr=(NODE_ID, 6))
    leader.fetch_by(7, 0)
    leader.led.lead(3, 1, REPLICAS, (NODE_ID, 6))
    assert leader.led.proposed_isr == (NODE_ID, 6, 7)
    leader.led.lead(4, 2, REPLICAS, (NODE_ID, 6))
    assert leader.led.proposed_isr is None
    leader.close()


def test_who_is_no_replica_is_refused(leader: Leader) -> None:
    answer = fetched(leader.client(), 99, 0)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_earlier_life_of_a_follower_is_refused(leader: Leader) -> None:
    """KIP-903: it may have lost what that life had."""
    append(leader, 3)
    assert leader.fetch_by(6, 1, epoch=20).error_code == 0
    assert leader.fetch_by(6, 3, epoch=19).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader.table.replication.live = {NODE_ID: 1, 6: 25, 7: 2, 8: 3}
    assert leader.fetch_by(6, 3, epoch=20).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.offset_of(6) == 1
    assert leader.fetch_by(6, 3, epoch=25).error_code == 0


def test_a_dead_replica_is_neither_waited_for_nor_proposed(tmp_path: Path) -> None:
    leader = Leader(tmp_path, isr=(NODE_ID, 6))
    leader.table.on_isr_change = None
    leader.fetch_by(7, 0)
    append(leader, 2)
    leader.fetch_by(6, 2)
    assert leader.led.high_watermark == 0  # 7 is near enough to be waited for
    leader.table.replication.live = {NODE_ID: 1, 6: 2}
    leader.led.advance()
    assert leader.led.high_watermark == 2
    leader.close()


def test_with_fewer_than_min_insync_replicas_it_stays(leader: Leader) -> None:
    leader.led.configure(stored_codec=-1, stored_level=-1, min_insync_replicas=2)
    leader.led.isr_applied((NODE_ID,), 2, 3)
    leader.now_ms += LAG_MS + 1
    leader.led.configure(stored_codec=-1, stored_level=-1, min_insync_replicas=1)
    append(leader, 1)
    assert leader.led.high_watermark == 1
    leader.led.configure(stored_codec=-1, stored_level=-1, min_insync_replicas=2)
    told: list[int] = []
    leader.led.when_committed(1, told.append)
    assert told == [0]
    assert leader.led.append_batches(build_batch([b"v"]))[0] == ErrorCode.NOT_ENOUGH_REPLICAS


def test_waits_are_answered_in_the_order_of_their_offsets(leader: Leader) -> None:
    told: list[tuple[int, int]] = []
    append(leader, 9)
    for offset in (3, 9, 5, 5, 1):
        leader.led.when_committed(offset, lambda code, offset=offset: told.append((offset, code)))
    for node in FOLLOWERS:
        leader.fetch_by(node, 5)
    leader.loop.turn()
    assert told == [(1, 0), (3, 0), (5, 0), (5, 0)]
    leader.led.follow(6, 4)
    leader.loop.turn()
    assert told[4:] == [(9, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    leader.led.when_committed(1, lambda code: told.append((1, code)))
    assert told[5:] == [(1, ErrorCode.NOT_LEADER_OR_FOLLOWER)]


def test_a_partition_that_moves_keeps_its_high_watermark(leader: Leader) -> None:
    """To another log dir: a copy there has no state of its own."""
    append(leader, 4)
    for node in FOLLOWERS:
        leader.fetch_by(node, 3)
    copy = leader.dir.log("copy", 0)
    copy.core.follows_end = False
    for _ in range(4):
        copy.append(b"v")
    assert copy.high_watermark == 0
    leader.led.replace_log(copy)
    assert leader.led.high_watermark == 3
    for node in FOLLOWERS:
        leader.fetch_by(node, 4)
    assert copy.high_watermark == 4


# ---- against the model ----


class Model:
    """What the high watermark must be, in the plainest words."""

    def __init__(self) -> None:
        self.end = self.high = 0
        self.isr = set(REPLICAS)
        self.proposed: set[int] | None = None
        self.offsets = dict.fromkeys(FOLLOWERS, -1)
        self.seen_end = dict.fromkeys(FOLLOWERS, -1)
        self.seen_ms = dict.fromkeys(FOLLOWERS, -(10**9))
        self.near_ms = dict.fromkeys(FOLLOWERS, 50_000)

    def append(self, count: int, now_ms: int) -> None:
        for node in FOLLOWERS:
            if self.offsets[node] == self.end:
                self.near_ms[node] = now_ms
        self.end += count

    def fetch(self, node: int, offset: int, now_ms: int) -> None:
        if offset >= self.end:
            self.near_ms[node] = now_ms
        elif offset >= self.seen_end[node]:
            self.near_ms[node] = max(self.near_ms[node], self.seen_ms[node])
        self.offsets[node], self.seen_end[node], self.seen_ms[node] = offset, self.end, now_ms
        if node not in self.isr and self.proposed is None and offset >= self.high:
            self.proposed = self.isr | {node}

    def settle(self, now_ms: int) -> None:
        held = self.isr | (self.proposed or set())
        held |= {node for node in FOLLOWERS if now_ms - self.near_ms[node] <= LAG_MS}
        least = min([self.end, *(self.offsets[node] for node in held - {NODE_ID})])
        self.high = max(self.high, least)


@pytest.mark.parametrize("seed", range(12))
def test_it_is_what_the_model_says(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    leader, model = Leader(tmp_path), Model()
    told: list[int] = []
    asked: list[int] = []
    version = 1
    for _ in range(250):
        what = rng.choice(["append", "fetch", "fetch", "fetch", "wait", "time", "shrink", "decide"])
        if what == "append":
            count = rng.randrange(1, 4)
            append(leader, count)
            model.append(count, leader.now_ms)
        elif what == "fetch":
            node = rng.choice(FOLLOWERS)
            low = max(0, model.offsets[node] - rng.choice([0, 0, 0, 2]))
            offset = rng.choice([model.end, rng.randint(low, max(low, model.end))])
            offset = min(offset, model.end)
            assert leader.fetch_by(node, offset).error_code == 0
            model.fetch(node, offset, leader.now_ms)
        elif what == "wait" and model.end:
            number = len(asked)
            asked.append(rng.randint(1, model.end))
            leader.led.when_committed(asked[-1], lambda code, number=number: told.append(number))
        elif what == "time":
            leader.now_ms += rng.choice([1, 300, LAG_MS + 1])
        elif what == "shrink":
            late = leader.led.shrink_candidates(leader.now_ms, LAG_MS)
            expected = [
                node for node in FOLLOWERS
                if model.proposed is None and node in model.isr
                and model.offsets[node] != model.end
                and leader.now_ms - model.near_ms[node] > LAG_MS
            ]  # fmt: skip
            assert late == expected
            if late:
                model.proposed = model.isr - set(late)
                leader.led.propose_isr(tuple(sorted(model.proposed)))
        elif what == "decide" and model.proposed is not None:
            if rng.random() < 0.7:
                version += 1
                model.isr = model.proposed
                assert leader.led.isr_applied(leader.proposed[-1], version, 3)
            else:
                leader.led.isr_refused()
            model.proposed = None
        if what == "time":
            leader.led.advance()
        model.settle(leader.now_ms)
        leader.loop.turn()
        assert leader.led.high_watermark == model.high, what
        assert set(leader.led.isr) == model.isr
        assert set(leader.led.proposed_isr or ()) == (model.proposed or set())
        assert sorted(told) == [n for n, offset in enumerate(asked) if offset <= model.high]
    assert model.high > 20
    leader.close()
