"""What is known of an offset that a group commits: what it is at least, and which commits may still
arrive.

A client that hears no answer and goes on over another connection can be overtaken by itself: the
network may deliver the first commit after a later one that was acknowledged, and the broker, as
Kafka's, takes what comes last. So a commit without an answer may show at any later time, but only
until another member owns the partition: the coordinator refuses it then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.sim.machines.world import World


def refused_by_brokers(world: World) -> int:
    """The sum of kstore_owner_commits_refused_total of the brokers that run."""
    found = 0
    for node in world.brokers():
        groups = None if node.broker is None else node.broker.groups.made
        found += 0 if groups is None else groups.commits_refused.total()
    return found


class Asked(NamedTuple):
    """What was known when the offset was asked for."""

    low: int
    owner: tuple[str, int] | None
    """Who owned the partition then, and since when, by its number among the owners."""


class GroupOffset:
    """The offset of one group for one partition; members only commit larger ones."""

    def __init__(self) -> None:
        self.low = -1
        """What the offset is at least, but for commits under way; -1: there may be none."""
        self.high = -1
        """The largest that was sent."""
        self._under_way: list[tuple[str, int]] = []
        """Commits without an answer so far: the member and its offset."""

    def sent(self, member: str, offset: int) -> None:
        """A member is about to commit."""
        self.high = max(self.high, offset)
        self._under_way.append((member, offset))

    def answered(self, member: str, offset: int, *, acknowledged: bool) -> None:
        """The answer to a commit came."""
        self._under_way.remove((member, offset))
        if acknowledged:
            self.low = max(self.low, offset)

    def found(self, offset: int, asked: Asked, owner: tuple[str, int] | None) -> bool:
        """The offset was reported, and ``owner`` owns the partition now; whether both
        may be true.
        """
        late = any(offset == each for _, each in self._under_way)
        if not late and not asked.low <= offset <= self.high:
            return False
        if offset < asked.low == self.low:
            self.low = offset  # members continue from there
        if owner is not None and owner == asked.owner:
            # Those of others arrived before they could be refused, or never will.
            self._under_way = [each for each in self._under_way if each[0] == owner[0]]
        return True
