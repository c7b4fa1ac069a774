"""What members of a share group may receive: tests of the rules."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.sim.deliveries import ACCEPT, REJECT, RELEASE, RENEW, Deliveries, Hold
from tests.sim.history import History, Place
from tests.sim.workloads.sharing import DRAIN_S, ShareMember

PLACE = Place("t", 0)
LIMIT = 3
LOCK_S = 10.0


class Story:
    """Members of a share group, and one record that is delivered to them."""

    def __init__(self) -> None:
        self.history = History()
        self.history.acknowledged[PLACE][0] = b"value"
        self.deliveries = Deliveries(self.history, "t", LIMIT)

    def give(self, member: str, sent_at: float, received_at: float, *, count: int = 1) -> Hold:
        """A fetch that was sent then has the record in its answer."""
        hold = Hold(PLACE, 0, count, member, (sent_at, received_at, LOCK_S))
        self.deliveries.delivered(hold)
        return hold

    def tell(
        self, hold: Hold, kind: int, sent_at: float, heard_at: float, *, led: bool = True
    ) -> None:
        """An acknowledgement is accepted."""
        self.deliveries.kept([(hold, kind)], sent_at, heard_at, led=led)

    @property
    def broken(self) -> list[str]:
        return [violation.rule for violation in self.history.violations]


@pytest.fixture
def story() -> Story:
    return Story()


@pytest.mark.parametrize("kind", [ACCEPT, REJECT])
def test_what_was_accepted_or_rejected_is_not_asked_for_and_given_again(
    story: Story, kind: int
) -> None:
    story.tell(story.give("a", 1, 2), kind, 3, 4)
    assert story.deliveries.missing() == []
    story.give("b", 3.5, 6, count=2)
    assert story.broken == [], "it may have been given before, and the answer was late"
    story.give("b", 4.5, 6, count=2)
    assert story.broken == ["accepted_once"]


def test_two_do_not_accept(story: Story) -> None:
    one, two = story.give("a", 1, 2), story.give("b", 1, 2)
    story.tell(one, ACCEPT, 3, 5)
    story.tell(two, ACCEPT, 4, 6)
    assert story.broken == ["accepted_once"]


def test_what_is_acknowledged_late_or_elsewhere_proves_nothing(story: Story) -> None:
    one, two = story.give("a", 1, 2), story.give("b", 12, 13, count=2)
    story.tell(two, ACCEPT, 14, 15)
    story.tell(one, ACCEPT, 16, 17)
    story.tell(two, ACCEPT, 16, 17, led=False)
    assert story.broken == []


def test_nobody_else_is_given_a_record_while_it_is_held(story: Story) -> None:
    hold = story.give("a", 1, 2)
    story.give("b", 3, 4)
    story.tell(hold, RELEASE, 5, 6)
    assert story.broken == ["one_holder"]


def test_another_answer_that_was_under_way_breaks_nothing(story: Story) -> None:
    hold = story.give("a", 2, 4)
    story.give("b", 3, 5)
    story.tell(hold, RELEASE, 6, 7)
    assert story.broken == []


def test_a_lock_does_not_end_before_its_time(story: Story) -> None:
    hold = story.give("a", 1, 2)
    story.deliveries.not_held([hold], 11)
    assert story.broken == []
    story.tell(hold, RENEW, 5, 6)
    story.deliveries.not_held([hold], 14)
    assert story.broken == ["one_holder"]


def test_deliveries_are_counted_and_have_a_limit(story: Story) -> None:
    story.give("a", 1, 2, count=LIMIT)
    assert story.broken == []
    story.give("a", 1, 2, count=LIMIT + 1)
    assert story.broken == ["delivery_count"]


def test_a_release_counts(story: Story) -> None:
    story.tell(story.give("a", 1, 2), RELEASE, 3, 4)
    story.give("b", 3.5, 6, count=1)
    story.give("b", 5, 6, count=2)
    assert story.broken == []
    story.give("b", 7, 8, count=1)
    assert story.broken == ["delivery_count"]


def test_a_record_is_missing_until_it_is_accepted_or_may_be_at_its_limit(story: Story) -> None:
    assert story.deliveries.missing() == [(PLACE, 0)]
    story.give("a", 1, 2)
    story.deliveries.not_answered([PLACE])
    assert story.deliveries.missing() == [(PLACE, 0)]
    story.deliveries.check()
    assert story.broken == ["share_lost"]
    story.deliveries.not_answered([PLACE])
    assert story.deliveries.missing() == [], "it may have been delivered three times"


def test_an_acceptance_without_an_answer_may_be_kept(story: Story) -> None:
    hold = story.give("a", 1, 2)
    story.deliveries.perhaps_kept([(hold, RELEASE)])
    assert story.deliveries.missing() == [(PLACE, 0)]
    story.deliveries.perhaps_kept([(hold, ACCEPT)])
    assert story.deliveries.missing() == []


class Behind:
    """Records may be missing as long as those before them are delivered one at a time."""

    ended = 0

    def missing(self) -> list[tuple[Place, int]]:
        return [(PLACE, 200)]


def member_behind(deliveries: Any) -> ShareMember:
    client: Any = SimpleNamespace(name="one")
    return ShareMember(client, History(), deliveries, "g", [PLACE])


def test_a_member_goes_on_as_long_as_records_find_their_end() -> None:
    """Records that a slow member received too often are delivered one at a time, before the
    others.
    """
    deliveries = Behind()
    member = member_behind(deliveries)
    for turn in range(200):
        assert not member.is_done(turn * DRAIN_S / 2)
        deliveries.ended += 1


def test_a_member_ends_when_no_record_finds_its_end_any_more() -> None:
    member = member_behind(Behind())
    assert not member.is_done(1.0)
    assert not member.is_done(DRAIN_S)
    assert member.is_done(1.0 + DRAIN_S)


def test_records_that_were_accepted_or_may_have_been_have_ended(story: Story) -> None:
    hold = story.give("a", 1, 2)
    assert story.deliveries.ended == 0
    story.deliveries.perhaps_kept([(hold, ACCEPT)])
    assert story.deliveries.ended == 1
    story.tell(hold, ACCEPT, 3, 4)
    assert story.deliveries.ended == 1, "one record"
