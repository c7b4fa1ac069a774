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

__all__ = ["NO_GROUP", "OTHERS", "PARKED", "RECORDS", "REQUESTS", "RESUME", "TIMERS", "resolve"]

NO_GROUP = ""
"""The kind under which REQUESTS has the row for a group that does not exist."""

OTHERS = "*"
"""The kind under which REQUESTS has the row for all kinds that have none, a missing group included.
"""

REQUESTS: dict[str, dict[str, str]] = {
    "JoinGroupRequest": {
        NO_GROUP: "classic_join:join_group",
        "classic": "classic_join:join_group",
    },
    "SyncGroupRequest": {
        NO_GROUP: "classic_sync:sync_group",
        "classic": "classic_sync:sync_group",
    },
    "HeartbeatRequest": {
        NO_GROUP: "classic_sync:heartbeat",
        "classic": "classic_sync:heartbeat",
    },
    "LeaveGroupRequest": {
        NO_GROUP: "classic_sync:leave_group",
        "classic": "classic_sync:leave_group",
    },
    "OffsetCommitRequest": {OTHERS: "offset_commit:commit_offsets"},
    "TxnOffsetCommitRequest": {OTHERS: "txn_offset_commit:commit_transactional_offsets"},
    "OffsetDeleteRequest": {OTHERS: "offset_commit:delete_offsets"},
    "DeleteGroupsRequest": {OTHERS: "group_admin:delete_groups"},
}
"""A request's class name to the group's kind to ``f(shard, group, request, ctx) -> Result``."""

RECORDS: dict[int, str] = {
    1: "offset_commit:replay_commit",
    2: "classic_group:replay_metadata",
}
"""A record's type to ``f(shard, key, value, record_offset, producer_id) -> None``."""

TIMERS: dict[str, dict[str, str]] = {
    "HeartbeatExpired": {"classic": "classic_sync:expire"},
    "InitialRebalanceExpired": {"classic": "classic_sync:expire"},
    "JoinExpired": {"classic": "classic_sync:expire"},
    "SyncExpired": {"classic": "classic_sync:expire"},
}
"""A timer event's class name to the kind to ``f(shard, group, event, ctx) -> Result``. An event for
a group that is gone, or of another kind now, came too late and does nothing."""

RESUME: dict[str, str] = {"classic": "classic_step:resume"}
"""The kind to ``f(shard, group, ctx) -> Result``: what follows the replay of the log."""

PARKED: dict[str, str] = {"classic": "classic_step:parked_answers"}
"""The kind to ``f(group) -> [(token, response)]``: answers to who waits when the shard goes."""


@cache
def resolve(row: str) -> Callable[..., Any]:
    """The function that a row names."""
    module_name, _, function_name = row.partition(":")
    module = import_module(f"kstore.broker.state.{module_name}")
    function: Callable[..., Any] = getattr(module, function_name)
    return function
