"""What a server-side assignor is given and what it answers. No rules are here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias
from uuid import UUID

__all__ = ["Assignments", "GroupSpec", "MemberSpec"]

Assignments: TypeAlias = dict[str, dict[UUID, frozenset[int]]]
"""Member id to topic id to partitions."""


class MemberSpec(NamedTuple):
    """What an assignor may know of a member."""

    instance_id: str | None
    topic_ids: frozenset[UUID]
    """The topics that it subscribes to, as far as they exist."""
    target: Mapping[UUID, frozenset[int]]
    """What it was to own until now."""


class GroupSpec(NamedTuple):
    """A group to be assigned: members by id, and the partition count of every subscribed topic."""

    members: Mapping[str, MemberSpec]
    partitions: Mapping[UUID, int]
    homogeneous: bool
    """Whether all members subscribe to the same topics."""
