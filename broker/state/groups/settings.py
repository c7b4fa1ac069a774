"""The broker's settings for groups of all kinds, as one value."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["GroupSettings"]


class GroupSettings(NamedTuple):
    """The broker settings for groups, in Kafka's units and with Kafka's defaults."""

    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3000
    new_member_join_timeout_ms: int = 300_000
    max_size: int = 2_147_483_647
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 7 * 24 * 3600 * 1000
    share_max_size: int = 200
    streams_max_size: int = 2_147_483_647
    consumer_max_size: int = 2_147_483_647
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: str = "bidirectional"
    consumer_regex_refresh_interval_ms: int = 600_000
    commit_requires_assignment: bool = False
    check_invariants: bool = False
