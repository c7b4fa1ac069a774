"""Which function decides on a request, takes over a record, or follows a timer, by the kind of the
group. Adding a kind of group is rows here and modules of its own.

Rows name functions as ``module:function`` below kstore.broker.state, so that a kind's modules are
imported when the first group of that kind is met.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

__all__ = [
    "CHECKS",
    "NO_GROUP",
    "OTHERS",
    "PARKED",
    "RECORDS",
    "REQUESTS",
    "RESUME",
    "TIMERS",
    "resolve",
]

NO_GROUP = ""
"""The kind under which REQUESTS has the row for a group that does not exist."""

OTHERS = "*"
"""The kind under which REQUESTS has the row for all kinds that have none, a missing group included.
"""

REQUESTS: dict[str, dict[str, str]] = {
    "JoinGroupRequest": {
        NO_GROUP: "classic_join:join_group",
        "classic": "classic_join:join_group",
        "streams": "streams_classic:join_group",
        "consumer": "consumer_classic:join",
    },
    "SyncGroupRequest": {
        NO_GROUP: "classic_sync:sync_group",
        "classic": "classic_sync:sync_group",
        "streams": "streams_classic:sync_group",
        "consumer": "consumer_classic:sync",
    },
    "HeartbeatRequest": {
        NO_GROUP: "classic_sync:heartbeat",
        "classic": "classic_sync:heartbeat",
        "streams": "streams_classic:heartbeat",
        "consumer": "consumer_classic:heartbeat",
    },
    "LeaveGroupRequest": {
        NO_GROUP: "classic_sync:leave_group",
        "classic": "classic_sync:leave_group",
        "streams": "streams_classic:leave_group",
        "consumer": "consumer_classic:leave",
    },
    "StreamsGroupHeartbeatRequest": {OTHERS: "streams_heartbeat:heartbeat"},
    "ConsumerGroupHeartbeatRequest": {OTHERS: "consumer_heartbeat:heartbeat"},
    "OffsetCommitRequest": {OTHERS: "offset_commit:commit_offsets"},
    "TxnOffsetCommitRequest": {OTHERS: "txn_offset_commit:commit_transactional_offsets"},
    "OffsetDeleteRequest": {OTHERS: "offset_commit:delete_offsets"},
    "DeleteGroupsRequest": {OTHERS: "group_admin:delete_groups"},
}
"""A request's class name to the group's kind to ``f(shard, group, request, ctx) -> Result``."""

RECORDS: dict[int, str] = {
    1: "offset_commit:replay_commit",
    2: "classic_group:replay_metadata",
    3: "consumer_records:replay_epoch",
    4: "consumer_records:replay_partition_metadata",
    5: "consumer_records:replay_member",
    6: "consumer_records:replay_target_epoch",
    7: "consumer_records:replay_target",
    8: "consumer_records:replay_assignment",
    16: "consumer_records:replay_regex",
    17: "streams_records:replay",
    19: "streams_records:replay",
    20: "streams_records:replay",
    21: "streams_records:replay",
    22: "streams_records:replay",
    23: "streams_records:replay",
}
"""A record's type to ``f(shard, key, value, record_offset, producer_id) -> None``."""

TIMERS: dict[str, dict[str, str]] = {
    "HeartbeatExpired": {"classic": "classic_sync:expire"},
    "InitialRebalanceExpired": {"classic": "classic_sync:expire"},
    "JoinExpired": {"classic": "classic_sync:expire"},
    "SyncExpired": {"classic": "classic_sync:expire"},
    "SessionExpired": {
        "consumer": "consumer_heartbeat:expire_member",
        "streams": "streams_timers:session_expired",
    },
    "RebalanceExpired": {
        "consumer": "consumer_heartbeat:expire_member",
        "streams": "streams_timers:rebalance_expired",
    },
    "RegexesDue": {"consumer": "consumer_heartbeat:resolve_regexes"},
    "StreamsDelayExpired": {"streams": "streams_timers:delay_expired"},
}
"""A timer event's class name to the kind to ``f(shard, group, event, ctx) -> Result``. An event for
a group that is gone, or of another kind now, came too late and does nothing."""

RESUME: dict[str, str] = {
    "classic": "classic_step:resume",
    "consumer": "consumer_heartbeat:resume",
    "streams": "streams_timers:resume",
}
"""The kind to ``f(shard, group, ctx) -> Result``: what follows the replay of the log."""

PARKED: dict[str, str] = {
    "classic": "classic_step:parked_answers",
    "consumer": "consumer_heartbeat:parked_answers",
    "streams": "streams_timers:parked_answers",
}
"""The kind to ``f(group) -> [(token, response)]``: answers to who waits when the shard goes."""


CHECKS: dict[str, str] = {
    "consumer": "consumer_invariants:check",
    "streams": "streams_invariants:check",
}
"""The kind to ``f(group)``, which asserts what must hold; if ``kstore.check.invariants`` is set."""


@cache
def resolve(row: str) -> Callable[..., Any]:
    """The function that a row names."""
    module_name, _, function_name = row.partition(":")
    module = import_module(f"kstore.broker.state.{module_name}")
    function: Callable[..., Any] = getattr(module, function_name)
    return function
