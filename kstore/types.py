"""The small value types that every layer shares. No behaviour beyond names and shapes."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Header", "TopicPartition"]


class TopicPartition(NamedTuple):
    """A topic's name and a partition's index; its directory is named ``topic-partition``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Header(NamedTuple):
    """One record header: a key and a value, which may be null."""

    key: str
    value: bytes | None
