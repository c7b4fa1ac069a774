"""Reads a topic with an unmodified client (librdkafka), so that kstore's own reader does not judge
what kstore wrote.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.beside.librdkafka import read_all


class Seen(NamedTuple):
    """A record as a consumer sees it."""

    offset: int
    timestamp: tuple[int, int]
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def everything(
    bootstrap: str, topic: str, partitions: int, isolation: str = "read_committed"
) -> list[list[Seen]]:
    """All records of each partition, up to its end."""
    found: list[list[Seen]] = [[] for _ in range(partitions)]
    settings = {"isolation.level": isolation}
    for each in read_all(bootstrap, topic, range(partitions), settings):
        headers = tuple(each.headers() or ())
        seen = Seen(each.offset(), each.timestamp(), each.key(), each.value(), headers)
        found[each.partition()].append(seen)
    return found
