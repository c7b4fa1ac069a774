"""Counts the members of a consumer group by subscription. In a large group most subscriptions are
equal, so computations over all subscriptions need not visit each member.
"""

from __future__ import annotations

from collections.abc import Iterable

from kstore.broker.state.groups.consumer.member import Member

__all__ = ["Subscriptions"]


class Subscriptions:
    """Topics and regular expression to the number of members with them."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[tuple[frozenset[str], str], int] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Subscriptions) and self._counts == other._counts

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"Subscriptions({self._counts!r})"

    def add(self, member: Member) -> None:
        """Count a member."""
        subscription = _subscription(member)
        self._counts[subscription] = self._counts.get(subscription, 0) + 1

    def remove(self, member: Member) -> None:
        """Remove a member from the counts."""
        subscription = _subscription(member)
        count = self._counts[subscription] - 1
        if count:
            self._counts[subscription] = count
        else:
            del self._counts[subscription]

    def after(self, leaving: Iterable[Member], joining: Iterable[Member] = ()) -> Subscriptions:
        """The counts after a change."""
        changed = Subscriptions()
        changed._counts = dict(self._counts)
        for member in leaving:
            changed.remove(member)
        for member in joining:
            changed.add(member)
        return changed

    def names(self, topic: str) -> bool:
        """Whether a member subscribes to the topic by name."""
        return any(topic in topics for topics, _ in self._counts)

    @property
    def named(self) -> set[str]:
        """The topics that members subscribe to by name."""
        return set().union(*(topics for topics, _ in self._counts))

    @property
    def regexes(self) -> set[str]:
        """The regular expressions of members."""
        return {regex for _, regex in self._counts if regex}

    @property
    def homogeneous(self) -> bool:
        """Whether all members name the same topics, or all the same regular expression and no
        topic.
        """
        if len(self._counts) != 1:
            return False
        ((topics, regex),) = self._counts
        return not (topics and regex)

    def having(self, regex: str) -> int:
        """How many members have a regular expression."""
        return sum(count for (_, each), count in self._counts.items() if each == regex)


def _subscription(member: Member) -> tuple[frozenset[str], str]:
    return member.topics, member.regex or ""
