"""Limits the topics of a group's regular expression to those that its subscriber may describe. A
pattern alone neither reveals a topic to a client nor assigns it.

Subscribers are only in memory. While a coordinator does not know the subscriber, it adds no topics,
and keeps those that were matched before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.acls import AclOperation, AclResourceType
from kstore.broker.state.bounded_cache import BoundedCache, text_bytes

if TYPE_CHECKING:
    from kstore.broker.state.security.authorizer import Authorizer

__all__ = ["RegexRights"]

MAX_KNOWN_BYTES = 8 << 20
"""The memory limit, since groups and expressions come from clients. Beyond it, the entry that was
unused for the longest time is dropped.
"""
ENTRY_BYTES = 512
"""The size of an entry without its texts."""


class RegexRights:
    """The last subscriber of each expression, by group."""

    def __init__(self, authorizer: Authorizer | None) -> None:
        """``authorizer`` checks rights. None: everything is allowed."""
        self._authorizer = authorizer
        self._subscribers: BoundedCache[tuple[str, str], tuple[str, str]] = BoundedCache(
            MAX_KNOWN_BYTES
        )

    def note(self, group_id: str, regex: str | None, principal: str, host: str) -> None:
        """Note the regular expression of a client's subscription."""
        if self._authorizer is None or not regex:
            return
        size = ENTRY_BYTES + sum(map(text_bytes, (group_id, regex, principal, host)))
        self._subscribers.put((group_id, regex), (principal, host), size)

    def knows(self, group_id: str, regex: str) -> bool:
        """Whether a subscriber is known."""
        return (group_id, regex) in self._subscribers

    def describable(
        self, group_id: str, regex: str, found: frozenset[str], known: frozenset[str]
    ) -> frozenset[str]:
        """The matched topics that the subscriber may describe. ``known`` are the topics of the last
        time.
        """
        authorizer = self._authorizer
        if authorizer is None:
            return found
        subscriber = self._subscribers.get((group_id, regex))
        if subscriber is None:
            return found & known
        topic, may = AclResourceType.TOPIC, AclOperation.DESCRIBE
        return frozenset(
            name for name in found if authorizer.authorize(*subscriber, may, topic, name)
        )
