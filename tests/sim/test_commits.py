"""Which offsets a group may have, and who may commit: the rules "commits" and "owners_commit"."""

from __future__ import annotations

import pytest

from kstore.errors import ErrorCode
from tests.sim.history import History, Place

PLACE = Place("t", 0)


class Story:
    """Members of a group and their observations."""

    def __init__(self) -> None:
        self.history = History()

    def commit(self, member: str, offset: int, *, acknowledged: bool | None) -> None:
        """None: no answer arrives."""
        self.history.commit_sent("g", PLACE, offset, member)
        if acknowledged is not None:
            code = ErrorCode.NONE if acknowledged else ErrorCode.UNKNOWN_MEMBER_ID
            self.history.commit_answered("g", PLACE, offset, member, code)

    def own(self, member: str, *, instead_of: str = "") -> None:
        if instead_of:
            self.history.disowns("g", PLACE, instead_of)
        self.history.owns("g", PLACE, member)

    def refused(self, member: str, code: int, *, gives_up: bool = False) -> bool:
        """Whether the member may be refused a commit with that error."""
        broken = len(self.history.violations)
        self.history.commit_sent("g", PLACE, 1, member)
        if gives_up:
            self.history.disowns("g", PLACE, member)
        self.history.commit_answered("g", PLACE, 1, member, code)
        return len(self.history.violations) == broken

    def finds(self, offset: int) -> bool:
        """Whether the group may have the offset."""
        broken = len(self.history.violations)
        self.history.found_commit("g", PLACE, offset, self.history.asks_commit("g", PLACE))
        return len(self.history.violations) == broken


@pytest.fixture
def story() -> Story:
    made = Story()
    made.own("one")
    return made


def test_nothing_acknowledged_is_lost(story: Story) -> None:
    assert story.finds(-1)
    story.commit("one", 5, acknowledged=True)
    story.commit("one", 9, acknowledged=True)
    assert story.finds(9)
    assert not story.finds(5)
    assert not story.finds(-1)
    assert not story.finds(10), "nobody sent it"


def test_what_was_refused_may_be_there_but_not_come_later(story: Story) -> None:
    story.commit("one", 5, acknowledged=False)
    assert story.finds(5)
    assert story.finds(-1)
    story.commit("one", 9, acknowledged=True)
    assert not story.finds(5)


def test_a_commit_without_an_answer_may_come_after_a_later_one(story: Story) -> None:
    """It was in transit on another connection, and the coordinator takes the last one that
    arrives.
    """
    story.commit("one", 5, acknowledged=True)
    story.commit("one", 10, acknowledged=None)
    story.commit("one", 19, acknowledged=True)
    assert story.finds(19)
    assert story.finds(10)
    assert not story.finds(5)


def test_who_goes_on_from_a_late_commit_commits_less_than_before(story: Story) -> None:
    story.commit("one", 10, acknowledged=None)
    story.commit("one", 19, acknowledged=True)
    story.own("two", instead_of="one")
    assert story.finds(10)
    story.commit("two", 12, acknowledged=True)
    assert story.finds(12)
    assert not story.finds(10), "the coordinator refuses who owned it before"


def test_a_late_commit_of_who_owned_it_before_is_refused(story: Story) -> None:
    story.commit("one", 10, acknowledged=None)
    story.commit("one", 19, acknowledged=True)
    story.own("two", instead_of="one")
    assert story.finds(19)
    assert not story.finds(10)


def test_a_question_from_before_the_owner_decides_nothing(story: Story) -> None:
    story.commit("one", 10, acknowledged=None)
    story.commit("one", 19, acknowledged=True)
    asked = story.history.asks_commit("g", PLACE)
    story.own("two", instead_of="one")
    story.history.found_commit("g", PLACE, 19, asked)
    assert story.finds(10), "it came between the question and the new owner"


def test_what_is_acknowledged_during_a_question_counts(story: Story) -> None:
    story.commit("one", 10, acknowledged=None)
    story.commit("one", 19, acknowledged=True)
    asked = story.history.asks_commit("g", PLACE)
    story.commit("one", 25, acknowledged=True)
    story.history.found_commit("g", PLACE, 10, asked)
    assert not story.history.violations
    assert not story.finds(19)
    assert story.finds(25)


def test_an_owner_is_not_refused(story: Story) -> None:
    assert not story.refused("one", ErrorCode.STALE_MEMBER_EPOCH)
    assert story.history.violations[-1].rule == "owners_commit"
    assert story.refused("one", ErrorCode.NOT_COORDINATOR), "it asks another one"
    assert story.refused("two", ErrorCode.STALE_MEMBER_EPOCH)
    assert story.refused("one", ErrorCode.UNKNOWN_MEMBER_ID, gives_up=True)
    story.own("one")
    assert not story.refused("one", ErrorCode.UNKNOWN_MEMBER_ID)
