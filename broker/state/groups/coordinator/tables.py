"""The tables of functions that decide about a request, apply a record, or handle a timer, by the
kind of the group. A new kind of group needs rows here and modules of its own.

Rows name functions as ``module:function`` below kstore.broker.state, so that the modules of a kind
are imported when the first group of that kind needs them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

__all__ = [
    "BEATS",
    "CHECKS",
    "NO_GROUP",
    "OTHERS",
    "PARKED",
    "QUICK",
    "RECORDS",
    "REQUESTS",
    "RESUME",
    "TIMERS",
    "resolve",
]

NO_GROUP = ""
"""The kind of the row in REQUESTS for a group that does not exist."""

OTHERS = "*"
"""The kind of the row in REQUESTS for all kinds without a row, including a missing group."""

REQUESTS: dict[str, dict[str, str]] = {
    "JoinGroupRequest": {
        NO_GROUP: "groups.classic.join:join_group",
        "classic": "groups.classic.join:join_group",
        "share": "groups.share.classic:join_group",
        "streams": "groups.streams.classic:join_group",
        "consumer": "groups.consumer.classic_members:join",
    },
    "SyncGroupRequest": {
        NO_GROUP: "groups.classic.sync:sync_group",
        "classic": "groups.classic.sync:sync_group",
        "share": "groups.share.classic:sync_group",
        "streams": "groups.streams.classic:sync_group",
        "consumer": "groups.consumer.classic_members:sync",
    },
    "HeartbeatRequest": {
        NO_GROUP: "groups.classic.sync:heartbeat",
        "classic": "groups.classic.sync:heartbeat",
        "share": "groups.share.classic:heartbeat",
        "streams": "groups.streams.classic:heartbeat",
        "consumer": "groups.consumer.classic_members:heartbeat",
    },
    "LeaveGroupRequest": {
        NO_GROUP: "groups.classic.sync:leave_group",
        "classic": "groups.classic.sync:leave_group",
        "share": "groups.share.classic:leave_group",
        "streams": "groups.streams.classic:leave_group",
        "consumer": "groups.consumer.classic_members:leave",
    },
    "StreamsGroupHeartbeatRequest": {OTHERS: "groups.streams.heartbeat:heartbeat"},
    "ConsumerGroupHeartbeatRequest": {OTHERS: "groups.consumer.heartbeat:heartbeat"},
    "ShareGroupHeartbeatRequest": {OTHERS: "groups.share.heartbeat:heartbeat"},
    "AlterShareGroupOffsetsRequest": {OTHERS: "groups.share.offsets:alter_offsets"},
    "DeleteShareGroupOffsetsRequest": {OTHERS: "groups.share.offsets:delete_offsets"},
    "OffsetCommitRequest": {OTHERS: "groups.coordinator.offset_commit:commit_offsets"},
    "TxnOffsetCommitRequest": {
        OTHERS: "groups.coordinator.txn_offset_commit:commit_transactional_offsets"
    },
    "OffsetDeleteRequest": {OTHERS: "groups.coordinator.offset_commit:delete_offsets"},
    "DeleteGroupsRequest": {OTHERS: "groups.coordinator.admin:delete_groups"},
}
"""A request's class name to the group's kind to ``f(shard, group, request, ctx)``, which returns a
Result, or work with a Result.
"""

QUICK: dict[str, dict[str, str]] = {
    "HeartbeatRequest": {"classic": "groups.classic.sync:quick_heartbeat"},
    "JoinGroupRequest": {"classic": "groups.classic.join:quick_join"},
    "SyncGroupRequest": {"classic": "groups.classic.sync:quick_sync"},
    "ConsumerGroupHeartbeatRequest": {"consumer": "groups.consumer.heartbeat:quick_heartbeat"},
}
"""Class name to kind to ``f(shard, group, request, ctx)``. It makes the same decision as in
REQUESTS, but without work and without a new version of the group, for the requests that all members
of a large group send: a heartbeat that only extends the session, a join or sync that waits for the
others. It returns None for all other requests.
"""

BEATS = frozenset({"HeartbeatRequest", "ConsumerGroupHeartbeatRequest"})
"""The requests that may report positions (KIP-253)."""

RECORDS: dict[int, str] = {
    1: "groups.coordinator.offset_commit:replay_commit",
    2: "groups.classic.records:replay_metadata",
    3: "groups.consumer.records:replay_epoch",
    4: "groups.consumer.records:replay_partition_metadata",
    5: "groups.consumer.records:replay_member",
    6: "groups.consumer.records:replay_target_epoch",
    7: "groups.consumer.records:replay_target",
    8: "groups.consumer.records:replay_assignment",
    10: "groups.share.records:replay_member",
    11: "groups.share.records:replay_epoch",
    12: "groups.share.records:replay_target_epoch",
    13: "groups.share.records:replay_target",
    14: "groups.share.records:replay_assignment",
    15: "groups.share.records:replay_states",
    16: "groups.consumer.records:replay_regex",
    17: "groups.streams.records:replay",
    19: "groups.streams.records:replay",
    20: "groups.streams.records:replay",
    21: "groups.streams.records:replay",
    22: "groups.streams.records:replay",
    23: "groups.streams.records:replay",
}
"""The type of a record to ``f(shard, key, value, record_offset, producer_id) -> None``."""

TIMERS: dict[str, dict[str, str]] = {
    "HeartbeatExpired": {"classic": "groups.classic.sync:expire"},
    "InitialRebalanceExpired": {"classic": "groups.classic.sync:expire"},
    "JoinExpired": {"classic": "groups.classic.sync:expire"},
    "SyncExpired": {"classic": "groups.classic.sync:expire"},
    "SessionExpired": {
        "consumer": "groups.consumer.heartbeat:expire_member",
        "share": "groups.share.heartbeat:expire_member",
        "streams": "groups.streams.timers:session_expired",
    },
    "RebalanceExpired": {
        "consumer": "groups.consumer.heartbeat:expire_member",
        "streams": "groups.streams.timers:rebalance_expired",
    },
    "RegexesDue": {"consumer": "groups.consumer.heartbeat:resolve_regexes"},
    "StreamsDelayExpired": {"streams": "groups.streams.timers:delay_expired"},
    "ShareStatesInitialized": {"share": "groups.share.offsets:follow_initialized"},
    "ShareStatesDeleting": {"share": "groups.share.offsets:follow_deleting"},
    "ShareStatesDeleted": {"share": "groups.share.offsets:follow_deleted"},
}
"""A timer event's class name to the kind to ``f(shard, group, event, ctx)``, as above. An event for
a group that was deleted, or is of another kind now, is obsolete and does nothing.
"""

RESUME: dict[str, str] = {
    "classic": "groups.classic.step:resume",
    "consumer": "groups.consumer.heartbeat:resume",
    "share": "groups.share.heartbeat:resume",
    "streams": "groups.streams.timers:resume",
}
"""The kind to ``f(shard, group, ctx)``, as above, which runs after the replay of the log."""

PARKED: dict[str, str] = {
    "classic": "groups.classic.step:parked_answers",
    "consumer": "groups.consumer.heartbeat:parked_answers",
    "share": "groups.share.heartbeat:parked_answers",
    "streams": "groups.streams.timers:parked_answers",
}
"""The kind to ``f(group) -> [(token, response)]``: the responses to parked requests when the shard
is unloaded.
"""


CHECKS: dict[str, str] = {
    "consumer": "groups.consumer.invariants:check",
    "share": "groups.share.invariants:check",
    "streams": "groups.streams.invariants:check",
}
"""The kind to ``f(group)``, which asserts invariants if ``kstore.check.invariants`` is set."""


@cache
def resolve(row: str) -> Callable[..., Any]:
    """Import the function that a row names."""
    module_name, _, function_name = row.partition(":")
    module = import_module(f"kstore.broker.state.{module_name}")
    function: Callable[..., Any] = getattr(module, function_name)
    return function
