"""Requests that must not overtake earlier commits of their group. A commit can wait until this
broker learns of a partition; if its member left in the meantime, the commit would be refused.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kstore.broker.runtime.groups.group_coordinator import GroupCoordinator
    from kstore.broker.runtime.groups.group_partition import Asker
    from kstore.broker.runtime.groups.partition_news import PartitionNews
    from kstore.broker.runtime.lazy import Lazy
    from kstore.protocol.schema import Message

__all__ = ["answer_behind_commits"]


class _Parts(Protocol):
    @property
    def groups(self) -> Lazy[GroupCoordinator]:
        """The group coordinator."""

    @property
    def partition_news(self) -> Lazy[PartitionNews] | None:
        """The part that learns of new partitions; None on a broker that creates them all."""


def answer_behind_commits(
    broker: _Parts, group_id: str, request: Message, ctx: Asker
) -> Message | Awaitable[Message]:
    """The group coordinator's answer. It waits for earlier commits of the group, at most for
    LINE_S. Raises KafkaError.
    """
    news = broker.partition_news
    if news is not None and news.made is not None and news.made.has_line(group_id):
        return _behind(broker, news.made, group_id, request, ctx)
    return broker.groups().answer(group_id, request, ctx)


async def _behind(
    broker: _Parts, news: PartitionNews, group_id: str, request: Message, ctx: Asker
) -> Message:
    try:
        async with news.line(group_id):
            answer = broker.groups().answer(group_id, request, ctx)
    except TimeoutError:
        answer = broker.groups().answer(group_id, request, ctx)
    # Its place in the order is decided: later commits do not wait for its replicas.
    return await answer if isinstance(answer, Awaitable) else answer
