"""The requests of a group member to a coordinator."""

from __future__ import annotations

from typing import Any

from kstore.broker.api import RequestContext
from kstore.broker.runtime.groups.group_coordinator import GroupCoordinator
from kstore.broker.state.work import each
from kstore.errors import ErrorCode
from kstore.protocol.groups.offsets import OffsetCommitRequest
from kstore.protocol.schema import Message
from tests.plain_messages import Ask
from tests.record_requests import commit_request, join_request

ASKED = RequestContext(0, 3, 0, "client", "127.0.0.1", "c", "PLAINTEXT", "User:ANONYMOUS")


def join(group: str = "g", session_ms: int = 60_000) -> Message:
    return join_request(group, metadata=b"m", ms=60_000, session_timeout_ms=session_ms)


def commit(offset: int, group: str = "g", partition: int = 0) -> OffsetCommitRequest:
    return commit_request("t", {partition: offset}, group)


async def committed(coordinator: GroupCoordinator, topic: str = "t", index: int = 0) -> int | None:
    """The offset that group g has for a partition."""
    (row,) = await coordinator.read(
        "g", lambda shard: each(lambda offsets: offsets.get("g", topic, index), [shard.offsets])
    )
    return None if row is None else row.offset


async def stable_member(coordinator: GroupCoordinator, session_ms: int = 60_000) -> str:
    joined: Any = await coordinator.handle("g", join(session_ms=session_ms), ASKED)
    assert joined.error_code == ErrorCode.NONE
    mine = {"member_id": joined.member_id, "assignment": b"mine"}
    request = Ask.SyncGroup(
        group_id="g", member_id=joined.member_id, generation_id=joined.generation_id,
        assignments=[mine],
    )  # fmt: skip
    synced: Any = await coordinator.handle("g", request, ASKED)
    assert synced.assignment == b"mine"
    return joined.member_id
