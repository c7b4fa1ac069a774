"""A model of transactional ids with producers that come back, race, time out and crash with the
broker. A fenced producer stays fenced, a transaction ends in the same way on all its partitions,
and the log agrees with the shard.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from kstore.broker.state.transactions.coordinator_shard import TransactionSettings, TransactionShard
from kstore.broker.state.transactions.state import (
    COMPLETED,
    LAST_EPOCH,
    NO_PRODUCER_EPOCH,
    ONGOING,
    PREPARE_COMMIT,
    PREPARED,
    TRANSITIONS,
    TV_0,
    TV_2,
    Transaction,
    TransactionRecord,
)
from kstore.broker.state.transactions.steps import Claim, Decision
from kstore.errors import ErrorCode
from kstore.types import TopicPartition

NAME = "transactional-id"
PLACES = [TopicPartition("t", index) for index in range(3)]
LIMITS = TransactionSettings(max_timeout_ms=1000, id_expiration_ms=100_000)


class Entry(NamedTuple):
    """The contents of a partition: a write (commits None) or a marker."""

    producer: Claim
    commits: bool | None
    number: int = -1


class Coordinator(RuleBasedStateMachine):
    """One transactional id, some producers that use it, three partitions."""

    actors = Bundle("actors")

    @initialize(epoch=st.sampled_from([NO_PRODUCER_EPOCH, LAST_EPOCH - 3]))
    def begin(self, epoch: int) -> None:
        self.shard = TransactionShard(LIMITS)
        self.log: list[TransactionRecord] = []
        self.now_ms = 1_000_000
        self.ids = 0
        self.number = 0
        self.given: dict[Claim, int] = {}
        self.held: dict[int, Claim] = {}
        self.fenced: set[Claim] = set()
        self.latest: Claim | None = None
        self.aborted: Claim | None = None
        self.partitions: dict[TopicPartition, list[Entry]] = {place: [] for place in PLACES}
        self.results: dict[int, bool] = {}
        if epoch != NO_PRODUCER_EPOCH:  # so that the last epochs are met
            used = Transaction(NAME, self.new_id(), epoch, timeout_ms=500, updated_ms=self.now_ms)
            self.take(used)

    # ---- the broker ----

    def new_id(self) -> int:
        self.ids += 1
        return self.ids

    def take(self, transaction: Transaction) -> None:
        before = self.shard.transactions.get(NAME)
        if before is not None:
            assert before.state in TRANSITIONS[transaction.state], (before, transaction)
            moved = transaction.producer_id != before.producer_id
            assert moved or transaction.producer_epoch >= before.producer_epoch
        assert -1 <= transaction.producer_epoch <= LAST_EPOCH
        self.log.append(self.shard.record_of(transaction))
        self.shard.commit(transaction)

    def carry_out(self, decision: Decision) -> int:
        if decision.transaction is not None:
            if decision.transaction.state in PREPARED:
                self.results[self.number] = decision.transaction.state == PREPARE_COMMIT
                self.number += 1
            self.take(decision.transaction)
        return decision.error_code

    def give(self, actor: int, producer: Claim) -> None:
        """No two producers ever hold the same id and epoch."""
        assert 0 <= producer.producer_epoch < LAST_EPOCH
        assert producer not in self.fenced
        assert self.given.setdefault(producer, actor) == actor
        for other, held in self.held.items():
            if other != actor:
                self.fenced.add(held)
        if self.held.get(actor) not in (None, producer):
            self.fenced.add(self.held[actor])
        self.held[actor] = self.latest = producer

    def fence_all(self, before: Transaction) -> None:
        """An abort that no producer requested: it must start again, or request that abort."""
        self.fenced.update(self.held.values())
        self.latest = None
        self.aborted = Claim(before.producer_id, before.producer_epoch)

    # ---- producers ----

    @rule(target=actors, actor=st.integers(0, 2))
    def meet(self, actor: int) -> int:
        return actor

    @rule(actor=actors, claims=st.booleans())
    def init(self, actor: int, claims: bool) -> None:
        claim = self.held.get(actor) if claims else None
        before = self.shard.transactions.get(NAME)
        decision = self.shard.handle_init(NAME, 500, claim, self.now_ms, self.new_id())
        code = self.carry_out(decision)
        if code == ErrorCode.NONE:
            assert self.shard.transactions[NAME].state not in PREPARED | {ONGOING}
            self.give(actor, decision.producer)
        else:
            assert code in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.PRODUCER_FENCED)
            if decision.transaction is not None:
                assert before is not None
                self.fence_all(before)
            assert code != ErrorCode.PRODUCER_FENCED or claim is not None

    @rule(actor=actors, places=st.sets(st.sampled_from(PLACES)), version=st.sampled_from([0, 2]))
    def add(self, actor: int, places: set[TopicPartition], version: int) -> None:
        if actor not in self.held:
            return
        producer = self.held[actor]
        decision = self.shard.handle_add(NAME, producer, frozenset(places), version, self.now_ms)
        if self.carry_out(decision) == ErrorCode.NONE:
            assert producer not in self.fenced
            assert places <= self.shard.transactions[NAME].partitions

    @rule(actor=actors, place=st.sampled_from(PLACES))
    def write(self, actor: int, place: TopicPartition) -> None:
        if actor not in self.held:
            return
        producer = self.held[actor]
        code = self.shard.verify(NAME, producer, frozenset({place}))[place]
        if code == ErrorCode.NONE:
            assert producer not in self.fenced
            assert self.shard.transactions[NAME].state == ONGOING
            self.partitions[place].append(Entry(producer, None, self.number))

    @rule(actor=actors, committed=st.booleans(), version=st.sampled_from([TV_0, TV_2]))
    def end(self, actor: int, committed: bool, version: int) -> None:
        if actor not in self.held:
            return
        producer = self.held[actor]
        number = self.number
        decision = self.shard.handle_end(
            NAME, producer, version, self.now_ms, self.new_id(), committed=committed
        )
        if self.carry_out(decision) != ErrorCode.NONE:
            return
        repeats_abort = version == TV_2 and not committed and decision.transaction is None
        assert producer not in self.fenced or (repeats_abort and producer == self.aborted)
        if decision.transaction is None:
            number -= 1  # a repetition: the response says how the transaction ended
        assert self.results[number] == committed
        if version == TV_2:
            assert decision.producer != producer
            self.give(actor, decision.producer)

    # ---- time and crashes ----

    @rule(passed_ms=st.integers(1, 400))
    def pass_time(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    @rule()
    def abort_overdue(self) -> None:
        for name in list(self.shard.ongoing):
            before = self.shard.transactions[name]
            prepared = self.shard.handle_overdue(name, self.now_ms)
            if prepared is None:
                assert self.now_ms - before.started_ms <= before.timeout_ms
                continue
            assert prepared.started_ms + prepared.timeout_ms < self.now_ms
            self.carry_out(Decision(ErrorCode.NONE, prepared))
            self.fence_all(before)

    @rule(until=st.integers(0, 4))
    def write_markers(self, until: int) -> None:
        """All markers and the end of the transaction, or some of the markers before a crash."""
        for prepared in self.shard.prepared():
            places = sorted(prepared.partitions)
            for place in places[:until]:
                producer = Claim(prepared.producer_id, prepared.producer_epoch)
                commits = prepared.state == PREPARE_COMMIT
                self.partitions[place].append(Entry(producer, commits))
            if until >= len(places):
                completed = self.shard.handle_completed(NAME, self.now_ms)
                assert completed is not None
                self.take(completed)
                assert completed.state in COMPLETED

    @rule()
    def crash(self) -> None:
        """Another coordinator reads the log; it does not know the epoch before the present one."""
        again = TransactionShard(LIMITS)
        for record in self.log:
            again.replay(record)
        forgetful = {
            name: item._replace(last_producer_epoch=NO_PRODUCER_EPOCH)
            for name, item in self.shard.transactions.items()
        }
        assert again.transactions == forgetful
        assert again.ongoing == self.shard.ongoing
        assert len(again.prepared()) == len(self.shard.prepared())
        self.shard = again

    @rule()
    def expire(self) -> None:
        for record in self.shard.expired([NAME, "unknown"], self.now_ms):
            assert self.shard.transactions[NAME].state not in PREPARED | {ONGOING}
            self.log.append(record)
            self.shard.replay(record)
            self.latest = None

    # ---- what always holds ----

    @invariant()
    def the_latest_producer_may_go_on(self) -> None:
        found = self.shard.transactions.get(NAME) if hasattr(self, "shard") else None
        if found is not None and found.state not in PREPARED and self.latest is not None:
            assert (found.producer_id, found.producer_epoch) == self.latest

    @invariant()
    def every_transaction_ends_one_way_everywhere(self) -> None:
        state = self.shard.transactions.get(NAME) if hasattr(self, "shard") else None
        for place, entries in getattr(self, "partitions", {}).items():
            open_number = -1
            for entry in entries:
                if entry.commits is None:
                    assert open_number in (-1, entry.number), (place, entries)
                    open_number = entry.number
                elif open_number >= 0:
                    assert entry.commits == self.results[open_number], (place, entries)
                    open_number = -1
            if open_number >= 0:
                assert state.state in PREPARED | {ONGOING}
                assert place in state.partitions


TestCoordinator = Coordinator.TestCase
TestCoordinator.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
