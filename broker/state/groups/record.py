"""A record of __consumer_offsets for any kind of group. Steps create it, and replay reads it."""

from __future__ import annotations

from typing import NamedTuple

from kstore.protocol.schema import Message

__all__ = ["GroupRecord"]


class GroupRecord(NamedTuple):
    """A record for __consumer_offsets: typed key, typed value (None deletes), and the value's
    version.
    """

    key: Message
    value: Message | None
    value_version: int = 0
