"""What a replicator is asked to do, what it tells, and how it fails."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from kstore.types import TopicPartition

__all__ = ["Event", "ReplicationError", "ReplicationOptions", "Report", "names_pattern"]


class ReplicationError(Exception):
    """What can't be copied, and why: the text names topic, partition and offset."""


class Event(NamedTuple):
    """Something worth telling. `kind`: topic, config, partition, group, loss, trouble, failed, and
    of a switch fenced, waiting, switched.
    """

    kind: str
    text: str
    tp: TopicPartition | None = None
    offset: int = -1


Report = Callable[[Event], None]


def names_pattern(names: Collection[str], *, regex: bool) -> re.Pattern[str]:
    """A pattern that matches the names given, or any of the regular expressions, wholly."""
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
    """Or read_uncommitted: aborted records too."""
    exact: bool = False
    """Logs as they are: markers, producers and leader epochs too; the copy takes nothing else."""
    fence_source: bool = False
    """At a switch, have the source refuse producers; it has to be kstore."""
    on_loss: str = "fail"
    """fail or skip, where the source has deleted records that the target does not have."""
    replication_factor: int = -1
    copy_configs: bool = True
    excluded_configs: frozenset[str] = field(default_factory=frozenset)
    rate_limit: float | None = None
    """Bytes per second."""
    sync_interval_ms: int = 10_000
    """How often topics, configs and committed offsets are looked at."""
    buffer_bytes: int = 64 << 20
    """How much may be fetched and not written yet, in all."""
    partition_buffer_bytes: int = 4 << 20
    fetch_bytes: int = 8 << 20
    """How much one fetch may bring."""
    request_bytes: int = 8 << 20
    """How much one Produce may carry."""
