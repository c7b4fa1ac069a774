"""The records of a share consumer, against a model that knows each offset's owner."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kstore.clients.core.share.acknowledgements import GAP, AcknowledgeType
from kstore.clients.core.share.holdings import Held, Holdings
from kstore.errors import InvalidRecordStateError
from kstore.types import TopicPartition

TP = TopicPartition("t", 0)
NODE = 7
KINDS = st.sampled_from(list(AcknowledgeType))


def held(offset: int, *, record: object = "record", expires_ms: float = 1_000) -> Held:
    """An acquired offset."""
    return Held(TP, offset, record, NODE, delivery_count=1, expires_ms=expires_ms)


class User(RuleBasedStateMachine):
    """Each offset is acquired once. The model has one set for each place that it can be in."""

    def __init__(self) -> None:
        super().__init__()
        self.holdings = Holdings()
        self.next = 0
        self.waiting: list[int] = []
        self.hands: set[int] = set()
        self.noted: dict[int, int] = {}
        self.requests: list[dict[int, int]] = []
        self.finished: dict[int, int] = {}
        self.returned: set[int] = set()

    @rule(rows=st.lists(st.booleans(), min_size=1, max_size=8))
    def arrive(self, rows: list[bool]) -> None:
        offsets = range(self.next, self.next + len(rows))
        self.holdings.arrived(
            held(offset, record="record" if has else None)
            for offset, has in zip(offsets, rows, strict=True)
        )
        for offset, has in zip(offsets, rows, strict=True):
            if has:
                self.waiting.append(offset)
            else:
                self.noted[offset] = GAP
        self.next += len(rows)

    @rule(most=st.integers(1, 5))
    def poll(self, most: int) -> None:
        found = [row.offset for row in self.holdings.take(most, 0)]
        assert found == self.waiting[:most]
        self.waiting = self.waiting[most:]
        self.hands |= set(found)
        self.returned |= set(found)

    @precondition(lambda self: self.hands)
    @rule(data=st.data(), kind=KINDS)
    def acknowledge(self, data: st.DataObject, kind: AcknowledgeType) -> None:
        offset = data.draw(st.sampled_from(sorted(self.hands)))
        self.holdings.acknowledge(TP, offset, kind)
        self.hands.discard(offset)
        self.noted[offset] = kind

    @rule(first=st.integers(0, 20), count=st.integers(0, 20), kind=KINDS)
    def acknowledge_range(self, first: int, count: int, kind: AcknowledgeType) -> None:
        mine = {offset for offset in self.hands if first <= offset <= first + count}
        if not mine:
            with pytest.raises(ValueError, match="waits for acknowledgement"):
                self.holdings.acknowledge_range(TP, first, first + count, kind)
            return
        assert self.holdings.acknowledge_range(TP, first, first + count, kind) == len(mine)
        self.hands -= mine
        self.noted |= dict.fromkeys(mine, kind)

    @precondition(lambda self: self.finished)
    @rule(data=st.data(), kind=KINDS)
    def what_is_done_is_not_acknowledged_again(
        self, data: st.DataObject, kind: AcknowledgeType
    ) -> None:
        offset = data.draw(st.sampled_from(sorted(self.finished)))
        with pytest.raises(ValueError, match=f"t-0 offset {offset} is not held"):
            self.holdings.acknowledge(TP, offset, kind)

    @rule()
    def send(self) -> None:
        found = self.holdings.begin_sending(NODE)
        assert found.get(TP, {}) == self.noted
        if self.noted:
            self.requests.append(self.noted)
        self.noted = {}

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), fails=st.booleans())
    def answer(self, data: st.DataObject, fails: bool) -> None:
        index = data.draw(st.integers(0, len(self.requests) - 1))
        types = self.requests.pop(index)
        error = InvalidRecordStateError("no lock") if fails else None
        result = self.holdings.sent(TP, types, error, 1_000)
        assert result.types == {o: kind for o, kind in types.items() if kind != GAP}
        assert result.error is error
        renewed = [] if fails else [o for o, k in types.items() if k == AcknowledgeType.RENEW]
        self.waiting = renewed + self.waiting
        for offset in set(types) - set(renewed):
            assert offset not in self.finished, "acknowledged twice"
            self.finished[offset] = types[offset]

    @invariant()
    def each_offset_is_in_one_place(self) -> None:
        places = [*self.waiting, *self.hands, *self.noted, *self.finished]
        places += [offset for request in self.requests for offset in request]
        assert sorted(places) == list(range(self.next))
        assert {row.offset for row in self.holdings.in_hand} == self.hands
        assert self.holdings.waiting == len(self.waiting)
        assert self.holdings.is_settled == (not self.noted and not self.requests)

    def teardown(self) -> None:
        """The user accepts the rest: each record that poll returned is then done, once."""
        while True:
            self.poll(100)
            self.holdings.acknowledge_all(AcknowledgeType.ACCEPT)
            self.noted |= dict.fromkeys(self.hands, AcknowledgeType.ACCEPT)
            self.hands = set()
            self.send()
            while self.requests:
                types = self.requests.pop()
                self.holdings.sent(TP, types, None, 1_000)
                renewed = [o for o, kind in types.items() if kind == AcknowledgeType.RENEW]
                self.waiting = renewed + self.waiting
                for offset in set(types) - set(renewed):
                    assert offset not in self.finished
                    self.finished[offset] = types[offset]
            if not self.waiting:
                break
        assert self.returned <= set(self.finished)
        assert sorted(self.finished) == list(range(self.next))


TestUser = User.TestCase
TestUser.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_a_record_whose_lock_has_run_out_is_not_handed_out() -> None:
    holdings = Holdings()
    holdings.arrived([held(0, expires_ms=50), held(1, expires_ms=200)])
    assert [row.offset for row in holdings.take(5, 100)] == [1]


def test_another_type_may_take_the_place_of_one_that_was_not_sent() -> None:
    holdings = Holdings()
    holdings.arrived([held(0)])
    holdings.take(1, 0)
    holdings.acknowledge(TP, 0, AcknowledgeType.ACCEPT)
    holdings.acknowledge(TP, 0, AcknowledgeType.REJECT)
    assert holdings.begin_sending(NODE) == {TP: {0: AcknowledgeType.REJECT}}
    with pytest.raises(ValueError, match="not held"):
        holdings.acknowledge(TP, 0, AcknowledgeType.ACCEPT)


def test_a_lost_session_takes_what_nobody_has_seen() -> None:
    holdings = Holdings()
    holdings.arrived([held(0), held(1), held(2, record=None)])
    holdings.take(1, 0)
    holdings.lose(NODE)
    assert holdings.take(5, 0) == []
    holdings.acknowledge(TP, 0, AcknowledgeType.ACCEPT)
    assert holdings.begin_sending(NODE) == {TP: {0: AcknowledgeType.ACCEPT}}


def test_a_renewed_record_may_be_accepted_before_poll_returns_it_again() -> None:
    holdings = Holdings()
    holdings.arrived([held(0), held(1)])
    holdings.take(1, 0)
    holdings.acknowledge(TP, 0, AcknowledgeType.RENEW)
    (types,) = holdings.begin_sending(NODE).values()
    holdings.sent(TP, types, None, 1_000)
    with pytest.raises(ValueError, match="not held"):
        holdings.acknowledge(TP, 1, AcknowledgeType.ACCEPT)  # it was never returned
    holdings.acknowledge(TP, 0, AcknowledgeType.ACCEPT)
    assert [row.offset for row in holdings.take(5, 0)] == [1]
