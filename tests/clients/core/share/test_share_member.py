"""A share group's member: what it says in heartbeats, and what answers mean."""

from __future__ import annotations

import uuid

from kstore.clients.core.share.member import ShareMember, ShareState
from kstore.errors import ErrorCode, GroupMaxSizeReachedError, NotCoordinatorError
from kstore.protocol.shares.heartbeat import ShareGroupHeartbeatResponse
from tests.plain_messages import Answer

TOPIC = uuid.UUID(int=5)


def member() -> ShareMember:
    """It has no jitter: the chance is the middle."""
    made = ShareMember("g", "me", lambda: 0.5, rack="r", max_poll_interval_ms=1_000)
    made.subscribe(frozenset({"b", "a"}))
    return made


def answer(epoch: int, *partitions: int, code: int = 0) -> ShareGroupHeartbeatResponse:
    """With an assignment, where partitions are given."""
    rows = {"topic_partitions": [{"topic_id": TOPIC, "partitions": list(partitions)}]}
    return Answer.ShareGroupHeartbeat(
        error_code=code, member_epoch=epoch, heartbeat_interval_ms=100,
        assignment=rows if partitions else None,
    )  # fmt: skip


def test_it_joins_with_everything_and_later_says_nothing_twice() -> None:
    me = member()
    assert me.next_ms() is None  # no call to poll
    me.polled(0)
    assert me.next_ms() == 0
    first = me.heartbeat()
    assert (first.member_epoch, first.rack_id) == (0, "r")
    assert first.subscribed_topic_names == ["a", "b"]
    assert me.answered(answer(3, 0, 1), 10) is None
    assert me.assigned == {(TOPIC, 0), (TOPIC, 1)}
    assert me.next_ms() == 110
    second = me.heartbeat()
    assert (second.member_epoch, second.rack_id, second.subscribed_topic_names) == (3, None, None)
    me.answered(answer(3), 110)
    assert me.assigned == {(TOPIC, 0), (TOPIC, 1)}  # nothing new to report
    me.subscribe(frozenset({"c"}))
    assert me.next_ms() == 0
    assert me.heartbeat().subscribed_topic_names == ["c"]


def test_a_subscription_during_a_heartbeat_is_told_with_the_next_at_once() -> None:
    me = member()
    me.polled(0)
    me.heartbeat()
    me.subscribe(frozenset({"c"}))
    me.answered(answer(1), 10)
    assert me.next_ms() == 0
    assert me.heartbeat().subscribed_topic_names == ["c"]


def test_one_who_was_thrown_out_joins_anew_with_the_same_id() -> None:
    for code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
        me = member()
        me.polled(0)
        me.heartbeat()
        me.answered(answer(3, 0), 10)
        assert me.answered(answer(0, code=code), 20) is None
        assert me.assigned == frozenset()
        again = me.heartbeat()
        assert (again.member_id, again.member_epoch) == ("me", 0)
        assert again.subscribed_topic_names == ["a", "b"]


def test_a_lost_answer_has_everything_said_again_after_a_pause() -> None:
    me = member()
    me.polled(0)
    me.heartbeat()
    me.answered(answer(3, 0), 0)
    me.heartbeat()
    me.failed(200)
    assert me.next_ms() == 300  # retry.backoff.ms
    assert me.heartbeat().subscribed_topic_names == ["a", "b"]
    error = me.answered(answer(0, code=ErrorCode.NOT_COORDINATOR), 300)
    assert isinstance(error, NotCoordinatorError)
    assert me.next_ms() == 500  # it doubles


def test_a_refused_member_tells_why_and_waits_for_another_subscription() -> None:
    me = member()
    me.polled(0)
    me.heartbeat()
    error = me.answered(answer(0, code=ErrorCode.GROUP_MAX_SIZE_REACHED), 10)
    assert isinstance(error, GroupMaxSizeReachedError)
    assert (me.state, me.next_ms()) == (ShareState.FAILED, None)
    assert me.leave() is None
    me.subscribe(frozenset({"a"}))
    me.polled(20)
    assert me.next_ms() == 0


def test_a_member_that_nobody_polls_leaves_and_comes_back_with_the_next_poll() -> None:
    me = member()
    me.polled(0)
    me.heartbeat()
    me.answered(answer(3, 0), 10)
    assert not me.is_idle(1_000)
    assert me.is_idle(1_001)
    request = me.leave()
    assert request is not None
    assert request.member_epoch == -1
    assert (me.assigned, me.next_ms(), me.leave()) == (frozenset(), None, None)
    me.polled(5_000)
    assert me.heartbeat().member_epoch == 0
