"""What a group shard is given and what it answers: contexts and results. Plain values, no
behaviour.

A result says everything that a step wants done. Nothing of it has happened until the runtime
appended its records and handed it to GroupShard.commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from kstore.broker.state.groups.contract import Group
from kstore.broker.state.groups.record import GroupRecord
from kstore.broker.state.groups.timers import TimerChange
from kstore.broker.state.metadata.image import MetadataImage
from kstore.protocol.schema import Message

__all__ = ["GroupContext", "Report", "Result", "Token"]

Token: TypeAlias = object
"""Names a parked request; opaque here, the runtime finds the waiting connection by it."""


class GroupContext(NamedTuple):
    """When, from whom and with what luck: all that a step may know beside state and request."""

    now_ms: int
    new_id: str
    """A fresh random UUID's text, for a member that has no id yet."""
    configs: Mapping[str, Any]
    """The group's settings (config resource GROUP) by name, the broker's where it has none of its
    own.
    """
    token: Token = None
    api_version: int = 0
    client_id: str = ""
    client_host: str = ""
    extended: bool = False
    """Whether who asks wants kstore's tagged fields in answers."""
    image: MetadataImage | None = None
    """Topics, their ids, partitions and racks as of now."""
    found: Mapping[str, frozenset[str]] = MappingProxyType({})
    """For RegexesDue: each of the group's regular expressions, and the topics that it matches and
    that who subscribed with it may describe.
    """

    @property
    def topics(self) -> MetadataImage:
        """The image, for steps that are always given one."""
        assert self.image is not None, "a step that needs the topics was given none"
        return self.image


class Report(NamedTuple):
    """What one member's last heartbeat said of positions (KIP-253)."""

    needed: frozenset[tuple[str, int]] = frozenset()
    positions: Mapping[tuple[str, int], tuple[int, int]] = {}
    """Each with the partition epoch that the partition had when it was told."""


class Result(NamedTuple):
    """What a step decided. ``response`` None means that the asker is parked until a completion
    names its token.
    """

    response: Message | None = None
    records: tuple[GroupRecord, ...] = ()
    completions: tuple[tuple[Token, Message], ...] = ()
    timers: tuple[TimerChange, ...] = ()
    groups: tuple[Group, ...] = ()
    """The successors of the groups that changed; they replace the live ones after the append."""
    producer: tuple[int, int] | None = None
    """The producer id and epoch in whose transaction the records are written."""
    marks: tuple[tuple[str, str, Any], ...] = ()
    """Soft state that no record holds: (group id, attribute, value), set after the append."""
    refused: tuple[int, ...] = ()
    """Why partitions were not committed whose owner asked for it: an error for each."""
    reports: tuple[str, dict[str, Report]] | None = None
    """What a group's members say of their positions (KIP-253), from now on."""
