"""The input and output of a group shard: contexts and results, as plain values.

A result describes everything that a step decides. Nothing happens until the runtime has appended
its records and passed it to GroupShard.take_over.
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

__all__ = ["Edit", "GroupContext", "Report", "Result", "Token"]

Token: TypeAlias = object
"""Identifies a parked request, so that the runtime finds its connection."""


class GroupContext(NamedTuple):
    """Everything that a step uses apart from state and request: time, client, random ids."""

    now_ms: int
    new_id: str
    """A new random UUID as text, for a member without an id."""
    configs: Mapping[str, Any]
    """The group's settings (config resource GROUP) by name, or the broker's."""
    token: Token = None
    api_version: int = 0
    client_id: str = ""
    client_host: str = ""
    extended: bool = False
    """Whether the client asks for kstore's tagged fields in responses."""
    image: MetadataImage | None = None
    """The current topics with ids, partitions and racks."""
    found: Mapping[str, frozenset[str]] = MappingProxyType({})
    """For RegexesDue: each of the group's regular expressions, and the topics that it matches and
    its subscriber may describe.
    """

    @property
    def topics(self) -> MetadataImage:
        """The image, for steps that always get one."""
        assert self.image is not None, "a step that needs the topics was given none"
        return self.image


class Report(NamedTuple):
    """The positions in one member's last heartbeat (KIP-253)."""

    needed: frozenset[tuple[str, int]] = frozenset()
    positions: Mapping[tuple[str, int], tuple[int, int]] = {}
    """Each position with the partition epoch at the time of the report."""


class Edit(NamedTuple):
    """A change of one member of a classic group. It is made in the live group: a new version of a
    large group would cost more than the rest of the step.
    """

    group_id: str
    member: Any = None
    """The member that joins or syncs, as it is from now on, unless ``pending`` is set."""
    has_synced: bool = False
    """Whether it is no longer among those that the group waits for in the sync phase."""
    pending: str = ""
    """A member id that a client has got and has not joined with."""


class Result(NamedTuple):
    """The decision of a step. If ``response`` is None, the request is parked until a completion
    names its token.
    """

    response: Message | None = None
    records: tuple[GroupRecord, ...] = ()
    completions: tuple[tuple[Token, Message], ...] = ()
    timers: tuple[TimerChange, ...] = ()
    groups: tuple[Group, ...] = ()
    """The new versions of the groups that changed. They replace the live ones after the append."""
    producer: tuple[int, int] | None = None
    """The producer id and epoch of the transaction that the records belong to."""
    marks: tuple[tuple[str, str, Any], ...] = ()
    """Soft state that no record has: (group id, attribute, value). It is set after the append."""
    refused: tuple[int, ...] = ()
    """The errors of partitions that were not committed although the claim's member owns them."""
    reports: tuple[str, dict[str, Report]] | None = None
    """The new reports of a group's members (KIP-253)."""
    edit: Edit | None = None
    """The only change of a step of `GroupShard.quick`."""
