"""The options of a replicator, its events, and its errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from kstore.types import TopicPartition

__all__ = ["Event", "ReplicationError", "ReplicationOptions", "Report", "names_pattern"]


class ReplicationError(Exception):
    """Something can't be copied; the message names topic, partition and offset, and says why."""


class Event(NamedTuple):
    """Something to report. `kind`: topic, config, partition, group, loss, trouble, failed, and of a
    switch fenced, waiting, switched.
    """

    kind: str
    text: str
    tp: TopicPartition | None = None
    offset: int = -1


Report = Callable[[Event], None]


def names_pattern(names: Collection[str], *, regex: bool) -> re.Pattern[str]:
    """A pattern that matches the whole names, or any of the regular expressions."""
    parts = names if regex else [re.escape(name) for name in names]
    try:
        return re.compile("|".join(f"(?:{part})" for part in parts))
    except re.error as error:
        raise ValueError(f"{' '.join(names)!r} is not a regular expression: {error}") from None


@dataclass(frozen=True)
class ReplicationOptions:
    """`topics` and `groups` match whole names; `groups` None copies no committed offsets."""

    topics: re.Pattern[str]
    groups: re.Pattern[str] | None = None
    isolation_level: str = "read_committed"
    """read_committed, or read_uncommitted: aborted records too."""
    exact: bool = False
    """Exact copies: also markers, producers and leader epochs; the copy refuses other writes."""
    fence_source: bool = False
    """At a switch, make the source refuse producers; it must be kstore."""
    on_loss: str = "fail"
    """fail or skip, if the source has deleted records that the target does not have."""
    replication_factor: int = -1
    copy_configs: bool = True
    excluded_configs: frozenset[str] = field(default_factory=frozenset)
    rate_limit: float | None = None
    """Bytes per second."""
    sync_interval_ms: int = 10_000
    """How often topics, configs and committed offsets are checked."""
    buffer_bytes: int = 64 << 20
    """The maximum of data that is fetched and not written yet, in total."""
    partition_buffer_bytes: int = 4 << 20
    fetch_bytes: int = 8 << 20
    """The maximum size of a fetch."""
    request_bytes: int = 8 << 20
    """The maximum size of a Produce request."""
