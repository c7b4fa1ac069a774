"""In which order a ShareFetch acknowledges, waits and acquires."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from kstore.broker.api.shares.share_fetch import handle_share_fetch
from kstore.broker.state.shares.share_sessions import ShareSessionCache, TopicIdPartition
from tests.beside.waiting import turns
from tests.plain_messages import Ask

PLACE = TopicIdPartition(UUID(int=1), 0)


class FakeManager:
    """Notes what it is asked; what is acknowledged is kept when the test says so."""

    def __init__(self) -> None:
        self.noted: list[str] = []
        self.kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        sessions: ShareSessionCache[None] = ShareSessionCache()
        self.session: Any = sessions.open("g", "m", None, 10)

    def begin(self, *_: Any) -> Any:
        return self.session

    def limits(self, group_id: str) -> Any:
        return SimpleNamespace(renews=True, lock_ms=1000)

    def acknowledge(
        self, session: Any, ranges: Mapping[TopicIdPartition, Any]
    ) -> Coroutine[None, None, dict[TopicIdPartition, int]]:
        self.noted.append(f"acknowledge {[*ranges.values()]}")
        return self._told(ranges)

    async def _told(self, ranges: Mapping[TopicIdPartition, Any]) -> dict[TopicIdPartition, int]:
        await self.kept
        self.noted.append("kept")
        return dict.fromkeys(ranges, 0)

    async def fetch(self, session: Any, places: Any, limits: Any) -> dict[TopicIdPartition, Any]:
        self.noted.append(f"acquire of {[*places]}")
        return {}


async def release_and_fetch() -> tuple[list[str], list[str]]:
    """What the manager was asked before what was acknowledged is kept, and at the end."""
    manager = FakeManager()
    entry = SimpleNamespace(name=b"t", partitions=[object()])
    broker: Any = SimpleNamespace(
        share_partitions=lambda: manager, throttles=None, authorizer=None,
        config={"fetch.max.bytes": 1 << 20}, table=SimpleNamespace(topic_by_id=lambda _: entry),
    )  # fmt: skip
    released = {"first_offset": 2, "last_offset": 3, "acknowledge_types": [2]}
    part = {"partition_index": 0, "acknowledgement_batches": [released]}
    request = Ask.ShareFetch(
        group_id="g", member_id="m", share_session_epoch=1, max_records=4, batch_size=4,
        topics=[{"topic_id": PLACE.topic_id, "partitions": [part]}],
    )  # fmt: skip
    ctx: Any = SimpleNamespace(connection=None, api_version=1)
    answering = asyncio.ensure_future(handle_share_fetch(broker, request, ctx))
    await turns(5)
    before = list(manager.noted)
    manager.kept.set_result(None)
    await answering
    return before, manager.noted


def test_records_are_acquired_once_what_the_request_releases_is_kept() -> None:
    before, noted = asyncio.run(release_and_fetch())
    assert before == ["acknowledge [[(2, 3, b'\\x02')]]"]
    assert noted == [*before, "kept", f"acquire of {[PLACE]}"]
