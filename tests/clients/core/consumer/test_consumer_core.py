"""The pure parts of the consumer: sessions, waiting records, resets, positions, plans."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore._fast.clients.fetched import FetchedRecords
from kstore.clients.core.consumer.epoch_history import EpochHistory
from kstore.clients.core.consumer.fetch_plan import FetchLimits, FetchPlan, Outcome
from kstore.clients.core.consumer.fetch_session import FetchSession, Wanted
from kstore.clients.core.consumer.inbox import Failure, Inbox
from kstore.clients.core.consumer.lost_records import Divergence
from kstore.clients.core.consumer.positions import (
    LogTruncationError,
    committable,
    committed_position,
    cut_off,
    needs,
    parse_reset,
    reset_timestamp,
)
from kstore.clients.core.consumer.subscription import (
    AssignedPartition,
    Position,
    Reset,
    SubscriptionState,
)
from kstore.clients.core.metadata import ClusterView
from kstore.errors import (
    ErrorCode,
    InvalidPartitionEpochError,
    OffsetOutOfRangeError,
    RecordListTooLargeError,
)
from kstore.protocol.logs.fetch import EpochEndOffset, LeaderIdAndEpoch, PartitionData
from kstore.record import build_batch
from kstore.types import OffsetAndMetadata, TopicPartition
from tests.clients.metadata_answers import metadata
from tests.plain_messages import Answer, Ask

TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
IDS = [uuid.UUID(int=n) for n in (1, 2)]


class SessionBroker:
    """The broker's half of KIP-227, as its text says it."""

    def __init__(self) -> None:
        self.sessions: dict[int, tuple[int, dict[tuple[Any, int], int]]] = {}
        self.last_id = 0

    def handle(self, request: Any, *, full: bool) -> tuple[Any, Any]:
        """The answer, and the offsets that are fetched, by topic and partition."""
        rows = {
            (topic.topic or topic.topic_id, row.partition): row.fetch_offset
            for topic in request.topics
            for row in topic.partitions
        }
        if request.session_epoch in (0, -1):
            self.sessions.pop(request.session_id, None)
            if request.session_epoch == -1 or full:
                return Answer.Fetch(), rows
            self.last_id += 1
            self.sessions[self.last_id] = 1, dict(rows)
            return Answer.Fetch(session_id=self.last_id), rows
        if request.session_id not in self.sessions:
            return Answer.Fetch(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND), None
        epoch, known = self.sessions[request.session_id]
        if epoch != request.session_epoch:
            return Answer.Fetch(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH), None
        for topic in request.forgotten_topics_data:
            for partition in topic.partitions:
                del known[topic.topic or topic.topic_id, partition]
        known |= rows
        self.sessions[request.session_id] = epoch + 1, known
        return Answer.Fetch(session_id=request.session_id), known


STEPS = st.lists(
    st.tuples(
        st.dictionaries(
            st.tuples(st.sampled_from("ab"), st.integers(0, 2)),
            st.tuples(st.integers(0, 3), st.integers(1, 2)),
        ),
        st.sampled_from(["fine", "fine", "lost before", "lost after", "forgotten", "cache full"]),
    )
)


@given(STEPS, st.booleans())
def test_a_session_makes_the_broker_fetch_exactly_what_is_wanted(
    steps: list[tuple[dict[tuple[str, int], tuple[int, int]], str]], by_id: bool
) -> None:
    session, broker = FetchSession(), SessionBroker()
    for named, trouble in steps:
        lives = {topic: row[1] for (topic, _), row in named.items()}
        ids = {topic: uuid.UUID(int=ord(topic) * 10 + life) for topic, life in lives.items()}
        wanted = {
            TopicPartition(topic, partition): Wanted(ids[topic], offset, 0, 100)
            for (topic, partition), (offset, _) in named.items()
        }
        if trouble == "forgotten":
            broker.sessions.clear()
        for _ in range(2):
            request = Ask.Fetch()
            session.fill(request, wanted, by_id=by_id)
            if trouble == "lost before":
                session.failed()
                break
            answer, fetched = broker.handle(request, full=trouble == "cache full")
            if trouble == "lost after":
                session.failed()
                break
            if session.answered(answer):
                assert fetched == {
                    (row.topic_id if by_id else tp.topic, tp.partition): row.offset
                    for tp, row in wanted.items()
                }
                break
        else:
            raise AssertionError("a session that is gone is begun anew at once")
    if session.is_open:
        last = Ask.Fetch()
        session.fill_last(last)
        broker.handle(last, full=False)
        assert session.session_id == 0


# ---- records that wait for the user ----


def fetched(row: AssignedPartition, *values: bytes, base: int, **more: Any) -> FetchedRecords:
    data = build_batch(values, base_offset=base, leader_epoch=more.pop("epoch", 0))
    return FetchedRecords(row.tp, data, start_offset=base, owner=row, version=row.version, **more)


def row_at(tp: TopicPartition, offset: int) -> AssignedPartition:
    row = AssignedPartition(tp, reading=True)
    row.seek(Position(offset))
    return row


def test_positions_follow_what_is_handed_out() -> None:
    taken: list[Any] = []
    inbox = Inbox(taken.append, print)
    row = row_at(TP, 0)
    inbox.put(fetched(row, b"a", b"b", base=0, epoch=3))
    inbox.put(fetched(row, b"c", base=5, epoch=4, leader_epoch=3))
    assert [r.value for r in inbox.take(1)] == [b"a"]
    assert row.position == Position(1, 3)
    assert [(r.offset, r.value) for r in inbox.take(9)] == [(1, b"b"), (5, b"c")]
    assert row.position == Position(6, 4)
    assert inbox.take(9) == []
    assert (row.position, row.source, len(taken)) == (Position(6, 4), None, 2)
    assert inbox.waiting_bytes == 0


def test_a_seek_throws_away_what_waits_and_what_is_half_read() -> None:
    inbox = Inbox(lambda item: None, print)
    row = row_at(TP, 0)
    inbox.put(fetched(row, b"a", b"b", base=0))
    inbox.put(fetched(row, b"c", base=2))
    inbox.take(1)
    row.seek(Position(40))
    assert inbox.take(9) == []
    assert row.position == Position(40)
    inbox.put(fetched(row, b"z", base=40))
    assert [r.offset for r in inbox.take(9)] == [40]


def test_what_was_handed_out_meanwhile_is_not_handed_out_again() -> None:
    inbox = Inbox(lambda item: None, print)
    row = row_at(TP, 0)
    inbox.put(fetched(row, b"a", b"b", b"c", base=0))
    inbox.take(1)
    row.discard_fetched()  # a fetch starts again at 1, while the user's thread takes another
    again = fetched(row, b"b", b"c", base=1)
    row.seek(Position(2))
    row.version = again.version
    inbox.put(again)
    assert [r.offset for r in inbox.take(9)] == [2]


def test_a_paused_partition_keeps_its_records_in_order_and_stops_no_other() -> None:
    inbox = Inbox(lambda item: None, print)
    first, second = row_at(TP, 0), row_at(OTHER, 0)
    inbox.put(fetched(first, b"a", b"b", base=0))
    inbox.put(fetched(second, b"x", base=0))
    inbox.put(fetched(first, b"c", base=2))
    inbox.take(1)
    first.paused = True
    assert [r.value for r in inbox.take(9)] == [b"x"]
    assert inbox.waiting_bytes == 0
    first.paused = False
    assert [r.value for r in inbox.take(9)] == [b"b", b"c"]
    first.paused = True
    inbox.put(fetched(first, b"d", base=3))
    assert inbox.take(9) == []
    first.seek(Position(0))
    first.paused = False
    assert inbox.take(9) == []
    assert inbox.waiting_bytes == 0


def test_an_error_comes_after_the_records_before_it_and_only_once() -> None:
    inbox = Inbox(lambda item: None, print)
    row = row_at(TP, 0)
    inbox.put(fetched(row, b"a", base=0))
    inbox.fail(Failure(RuntimeError("boom"), row))
    assert [r.value for r in inbox.take(9)] == [b"a"]
    with pytest.raises(RuntimeError, match="boom"):
        inbox.take(9)
    inbox.fail(Failure(RuntimeError("old"), row))
    row.seek(Position(0))
    assert inbox.take(9) == []


def test_an_error_of_several_partitions_comes_unless_all_of_them_were_sought() -> None:
    inbox = Inbox(lambda item: None, print)
    rows = [row_at(TP, 0), row_at(OTHER, 0)]
    inbox.fail(Failure(RuntimeError("boom"), rows[0], rows[1:]))
    rows[0].seek(Position(0))
    with pytest.raises(RuntimeError, match="boom"):
        inbox.take(9)
    inbox.fail(Failure(RuntimeError("old"), rows[0], rows[1:]))
    for row in rows:
        row.seek(Position(0))
    assert inbox.take(9) == []


# ---- resets and positions ----


@pytest.mark.parametrize(
    ("text", "reset"),
    [
        ("earliest", Reset(-2)),
        ("latest", Reset(-1)),
        ("none", None),
        ("by_duration:P1D", Reset(0, 86_400_000)),
        ("by_duration:PT1H30M0.5S", Reset(0, 5_400_500)),
    ],
)
def test_resets_are_read(text: str, reset: Reset | None) -> None:
    assert parse_reset(text) == reset


@pytest.mark.parametrize("text", ["first", "by_duration:", "by_duration:P", "by_duration:1H", ""])
def test_other_resets_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not one of earliest"):
        parse_reset(text)


def test_a_duration_is_counted_from_now() -> None:
    assert reset_timestamp(Reset(0, 400), 1_000) == 600
    assert reset_timestamp(Reset(0, 4_000), 1_000) == 0
    assert reset_timestamp(Reset(-1), 1_000) == -1


def test_an_offset_epoch_goes_through_a_commit() -> None:
    position = Position(7, 3, 5)
    assert committed_position(committable(position), uses_partition_epochs=True) == position
    without = committed_position(committable(position), uses_partition_epochs=False)
    assert without == Position(7, 3, -1)
    assert committable(Position(7)) == OffsetAndMetadata(7)


def found_at(position: Position, *answer: int) -> Divergence:
    found = Divergence(position, EpochHistory())
    found.on_epoch_end(*answer)
    return found


def test_a_cut_log_is_gone_back_on_or_told() -> None:
    row = row_at(TP, 10)
    before = Position(10, 3)
    assert cut_off(row, found_at(before, 2, 6), Reset(-2)) is None
    assert (row.position, row.validated, row.reset) == (Position(6, 2), True, None)
    assert cut_off(row, found_at(before, -1, -1), Reset(-2)) is None
    assert row.reset == Reset(-2)
    error = cut_off(row, found_at(before, 2, 6), None)
    assert isinstance(error, LogTruncationError)
    assert isinstance(error, OffsetOutOfRangeError)
    assert error.positions == {TP: 10}
    assert error.divergent_offsets == {TP: OffsetAndMetadata(6, "", 2)}
    unknown = cut_off(row, found_at(before, -1, -1), None)
    assert unknown is not None
    assert unknown.divergent_offsets == {}


# ---- plans ----


def view_of(epoch: int = 0, partition_epoch: int = -1) -> ClusterView:
    view = ClusterView()
    update(view, leader=1, epoch=epoch, partition_epoch=partition_epoch)
    return view


def update(view: ClusterView, *, leader: int, epoch: int, partition_epoch: int = -1) -> None:
    row = {"leader_id": leader, "leader_epoch": epoch, "partition_epoch": partition_epoch}
    epochs = {"max_partition_epoch": partition_epoch, "topic_id": IDS[0]}
    view.update(metadata((1, 2, 3), row, row, first=1, **epochs))


def plan_of(
    subscription: SubscriptionState, *, reset: Reset | None = None, limit: int = 1000
) -> FetchPlan:
    return FetchPlan(
        subscription,
        FetchLimits(100, limit, 10_000),
        reset=reset,
        read_committed=False,
        check_crcs=True,
        replica_max_age_ms=1_000,
        uses_partition_epochs=True,
    )


class Fixture:
    """A plan for partition 0 at offset 0, and its broker."""

    def __init__(self, **options: Any) -> None:
        self.subscription = SubscriptionState()
        self.subscription.assign([TP])
        self.row = self.subscription.partitions[TP]
        self.row.seek(Position(0))
        self.view = view_of()
        self.plan = plan_of(self.subscription, **options)

    def asked_of(self, now_ms: float = 0) -> list[int]:
        return list(self.plan.next_round(self.view, (), 0, now_ms).requests)

    def answer(self, now_ms: float = 0, **fields: Any) -> Outcome:
        ((node, wanted),) = self.plan.next_round(self.view, (), 0, now_ms).requests.items()
        asked = self.plan.ask(node, wanted)[TP]
        return self.plan.answered(asked, PartitionData(**fields), self.view, now_ms)


def test_fetches_run_ahead_until_enough_waits() -> None:
    fixture = Fixture(limit=150)
    first = fixture.answer(records=build_batch([b"x" * 50]))
    second = fixture.answer(records=build_batch([b"x" * 50], base_offset=1))
    assert first.records is not None
    assert second.records is not None
    assert second.records.next_offset == 1
    assert fixture.asked_of() == []
    assert fixture.plan.next_round(fixture.view, (), 0, 0).is_held
    fixture.plan.taken(first.records)
    assert fixture.asked_of() == [1]


def test_a_follower_is_read_from_for_a_while_and_given_up_after_an_error() -> None:
    fixture = Fixture()
    fixture.answer(preferred_read_replica=3)
    assert fixture.asked_of(now_ms=999) == [3]
    assert fixture.asked_of(now_ms=1_001) == [1]
    fixture.answer(preferred_read_replica=3)
    assert fixture.answer(error_code=ErrorCode.OFFSET_OUT_OF_RANGE).error is None
    assert fixture.asked_of(now_ms=0) == [1]
    fixture.answer(preferred_read_replica=3)
    fixture.view.brokers.pop(3)
    assert fixture.asked_of() == [1]


def test_a_follower_that_lags_causes_no_reset_when_it_is_no_longer_read_from() -> None:
    fixture = Fixture(reset=Reset(-1))
    fixture.answer(preferred_read_replica=3)
    ((node, wanted),) = fixture.plan.next_round(fixture.view, (), 0, 999).requests.items()
    asked = fixture.plan.ask(node, wanted)[TP]
    assert fixture.asked_of(now_ms=1_001) == [1]
    data = PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert fixture.plan.answered(asked, data, fixture.view, 1_002) == Outcome(pause=True)
    assert fixture.row.position == Position(0)
    assert fixture.row.reset is None


def test_a_leader_that_an_answer_tells_of_is_taken_at_once() -> None:
    fixture = Fixture()
    outcome = fixture.answer(
        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=5),
    )
    assert (outcome.refresh, outcome.pause, outcome.place) == (True, False, True)
    assert fixture.asked_of() == [2]
    outcome = fixture.answer(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert (outcome.refresh, outcome.pause) == (True, True)


def test_an_offset_outside_the_log_is_reset_or_told_after_what_waits() -> None:
    fixture = Fixture(reset=Reset(-2))
    fetched_before = fixture.answer(records=build_batch([b"x"])).records
    assert fetched_before is not None
    assert fixture.answer(error_code=ErrorCode.OFFSET_OUT_OF_RANGE) == Outcome()
    assert fixture.asked_of() == []
    fixture.plan.taken(fetched_before)
    assert fixture.answer(error_code=ErrorCode.OFFSET_OUT_OF_RANGE).place
    assert fixture.row.reset == Reset(-2)
    strict = Fixture()
    error = strict.answer(error_code=ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=4).error
    assert "partition t-0: offset 0 is outside the log, which begins at 4" in str(error)


def test_another_life_of_a_partition_is_told() -> None:
    fixture = Fixture()
    fixture.view = view_of(partition_epoch=7)
    fixture.row.seek(Position(0, -1, 7))
    assert fixture.answer(partition_epoch=7).error is None
    error = fixture.answer(partition_epoch=9).error
    assert isinstance(error, InvalidPartitionEpochError)
    assert error.partition_epochs == {TP: 9}
    unknown = Fixture()
    unknown.answer(partition_epoch=9)
    assert unknown.row.position == Position(0, -1, 9)


def test_a_diverging_log_has_the_position_validated() -> None:
    fixture = Fixture()
    fixture.row.seek(Position(5, 2))
    fixture.row.validated = True
    assert fixture.answer(diverging_epoch=EpochEndOffset(epoch=1, end_offset=3)).place
    assert not fixture.row.validated


def test_records_without_a_whole_batch_name_the_settings() -> None:
    error = Fixture().answer(records=build_batch([b"x" * 50])[:30]).error
    assert isinstance(error, RecordListTooLargeError)
    assert "max.partition.fetch.bytes" in str(error)


def test_an_answer_to_what_was_sought_away_means_nothing() -> None:
    fixture = Fixture()
    ((node, wanted),) = fixture.plan.next_round(fixture.view, (), 0, 0).requests.items()
    asked = fixture.plan.ask(node, wanted)[TP]
    fixture.row.seek(Position(9))
    data = PartitionData(records=build_batch([b"x"]))
    assert fixture.plan.answered(asked, data, fixture.view, 0) == Outcome()
    ((_, wanted),) = fixture.plan.next_round(fixture.view, (), 0, 0).requests.items()
    assert wanted[TP].offset == 9


def test_a_new_leader_has_positions_validated_and_what_waits_fetched_again() -> None:
    view = view_of(epoch=1)
    row = row_at(TP, 5)
    assert not needs([row], view)
    version = row.version
    row.seek(Position(5, 1))
    assert needs([row], view).validations == [row]
    row.validated = True
    version = row.version
    assert not needs([row], view)
    update(view, leader=2, epoch=2)
    assert needs([row], view).validations == [row]
    assert row.version == version + 1


def test_metadata_older_than_a_position_is_waited_for() -> None:
    view = view_of(epoch=1, partition_epoch=4)
    row = row_at(TP, 5)
    row.seek(Position(5, 1, 6))
    assert needs([row], view).metadata == [row]
    update(view, leader=2, epoch=0, partition_epoch=6)
    assert needs([row], view).metadata == [row]
    update(view, leader=2, epoch=1, partition_epoch=6)
    assert not needs([row], view).metadata
