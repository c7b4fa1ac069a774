"""Requests that must not overtake earlier commits of their group. A commit may wait until this
broker knows a partition. If the member could leave meanwhile, the commit would be refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, TypeVar

from kstore.broker.runtime.groups.partition_lookup import waiting_commits

if TYPE_CHECKING:
    from kstore.broker.runtime.groups.partition_lookup import PartitionLookup
    from kstore.broker.runtime.lazy import Lazy

__all__ = ["behind_commits"]

T = TypeVar("T")


def behind_commits(
    lookup: Lazy[PartitionLookup] | None, group_id: str, answer: Callable[[], T | Awaitable[T]]
) -> T | Awaitable[T]:
    """Call the coordinator once the group's earlier commits are decided, or after BEHIND_S."""
    waited_for = waiting_commits(lookup, group_id)
    return answer() if waited_for is None else _behind(waited_for.behind(group_id), answer)


async def _behind(
    line: AbstractAsyncContextManager[None], answer: Callable[[], T | Awaitable[T]]
) -> T:
    try:
        async with line:
            answered = answer()
    except TimeoutError:
        answered = answer()
    # The order is fixed now: later commits do not wait until the followers have this one.
    return await answered if isinstance(answered, Awaitable) else answered
