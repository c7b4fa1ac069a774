"""Which topics a group's regular expression may find: those that who subscribed with it may
describe. Nobody learns of a topic, or is assigned it, by a pattern alone.

Who subscribed is kept in memory only. A coordinator that has not heard it yet finds nothing new: it
keeps to what was found before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.acls import AclOperation, AclResourceType
from kstore.broker.state.bounded_cache import BoundedCache, text_bytes

if TYPE_CHECKING:
    from kstore.broker.state.security.authorizer import Authorizer

__all__ = ["RegexRights"]

MAX_KNOWN_BYTES = 8 << 20
"""Groups and expressions come from clients: beyond this, who was silent longest is forgotten."""
ENTRY_BYTES = 512
"""What each takes, beside its texts."""


class RegexRights:
    """Who subscribed with which expression last, by group."""

    def __init__(self, authorizer: Authorizer | None) -> None:
        """``authorizer`` decides who may do what; None: everybody may do everything."""
        self._authorizer = authorizer
        self._askers: BoundedCache[tuple[str, str], tuple[str, str]] = BoundedCache(MAX_KNOWN_BYTES)

    def note(self, group_id: str, regex: str | None, principal: str, host: str) -> None:
        """Who asks says what a member is subscribed to."""
        if self._authorizer is None or not regex:
            return
        size = ENTRY_BYTES + sum(map(text_bytes, (group_id, regex, principal, host)))
        self._askers.put((group_id, regex), (principal, host), size)

    def knows(self, group_id: str, regex: str) -> bool:
        """Whether anybody is known to have subscribed with it."""
        return (group_id, regex) in self._askers

    def describable(
        self, group_id: str, regex: str, found: frozenset[str], known: frozenset[str]
    ) -> frozenset[str]:
        """Those of the topics that the expression may find; ``known`` are those of last time."""
        authorizer = self._authorizer
        if authorizer is None:
            return found
        asker = self._askers.get((group_id, regex))
        if asker is None:
            return found & known
        topic, may = AclResourceType.TOPIC, AclOperation.DESCRIBE
        return frozenset(name for name in found if authorizer.authorize(*asker, may, topic, name))
