"""What is known about an offset that a group commits: its lower bound, and which commits may still
arrive.

A client that gets no answer and continues over another connection can overtake itself: the network
may deliver the first commit after a later one that was acknowledged. As in Kafka, the broker takes
the last one that arrives. So an unanswered commit may take effect at any later time, but only until
another member owns the partition: then the coordinator refuses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.sim.machines.world import World


def refused_by_brokers(world: World) -> int:
    """The sum of kstore_owner_commits_refused_total over the running brokers."""
    found = 0
    for node in world.brokers():
        groups = None if node.broker is None else node.broker.groups.made
        found += 0 if groups is None else groups.commits_refused.total()
    return found


class Asked(NamedTuple):
    """What was known when the offset was requested."""

    low: int
    owner: tuple[str, int] | None
    """Who owned the partition then, and since when, by its number among the owners."""


class GroupOffset:
    """The offset of one group for one partition; members only commit larger offsets."""

    def __init__(self) -> None:
        self.low = -1
        """What the offset is at least, but for commits under way; -1: there may be none."""
        self.high = -1
        """The largest that was sent."""
        self._in_progress: list[tuple[str, int]] = []
        """Commits without an answer so far: the member and its offset."""

    def sent(self, member: str, offset: int) -> None:
        """A member is about to commit."""
        self.high = max(self.high, offset)
        self._in_progress.append((member, offset))

    def answered(self, member: str, offset: int, *, acknowledged: bool) -> None:
        """The answer to a commit arrived."""
        self._in_progress.remove((member, offset))
        if acknowledged:
            self.low = max(self.low, offset)

    def found(self, offset: int, asked: Asked, owner: tuple[str, int] | None) -> bool:
        """The offset was reported, and ``owner`` now owns the partition; returns whether both may
        be true.
        """
        late = any(offset == each for _, each in self._in_progress)
        if not late and not asked.low <= offset <= self.high:
            return False
        if offset < asked.low == self.low:
            self.low = offset  # members continue from there
        if owner is not None and owner == asked.owner:
            # Commits of others arrived before they could be refused, or never will.
            self._in_progress = [each for each in self._in_progress if each[0] == owner[0]]
        return True
