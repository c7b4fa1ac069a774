"""What the log manager has done in the threads of the log dirs, some logs at a time. Nothing here
knows which log dir has what.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from uuid import UUID

from kstore.broker.state.work import ROWS_BETWEEN
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.log import Log, LogDir
    from kstore.log.settings import LogConfig

__all__ = [
    "Taken",
    "Wanted",
    "all_taken",
    "open_each",
    "open_wanted",
    "parts",
    "pieces",
    "topic_ids",
]

T = TypeVar("T")
LOGS_AT_ONCE = 16
"""What one call in a log dir's thread opens or takes away: those of others come in between."""


class Wanted(NamedTuple):
    """A log that is to be open."""

    key: TopicPartition
    topic_id: UUID
    config: LogConfig
    is_new: bool = True
    """Whether it may be made. Else, with a failed log dir, it is taken to lie there."""


class Taken(NamedTuple):
    """What is left of deleted logs: folders in a log dir."""

    log_dir: LogDir
    folders: list[str]


async def all_taken(taking: list[tuple[LogDir, asyncio.Future[list[str]]]]) -> list[Taken]:
    """The folders that are left, once all calls have ended; what one of them has raised."""
    await asyncio.gather(*(done for _, done in taking), return_exceptions=True)
    return [Taken(log_dir, done.result()) for log_dir, done in taking]


def pieces(items: Sequence[T]) -> Iterator[list[T]]:
    """So many of them as one call in a thread is for."""
    for start in range(0, len(items), LOGS_AT_ONCE):
        yield list(items[start : start + LOGS_AT_ONCE])


def parts(items: Iterable[T]) -> Iterator[list[T]]:
    """So many of them as the loop looks at without a break."""
    left = iter(items)
    while part := list(islice(left, ROWS_BETWEEN)):
        yield part


def open_wanted(log_dir: LogDir, wanted: Wanted) -> Log:
    """The log, opened or made."""
    key, topic_id, config, _ = wanted
    return log_dir.log(key.topic, key.partition, create=True, config=config, topic_id=topic_id)


def open_each(
    log_dir: LogDir, wanted: list[Wanted]
) -> list[tuple[Wanted, Log | Exception, str | None]]:
    """Each with its log, or why it can't be opened, and where what was there was put, if that is of
    another topic.
    """
    from kstore.log.errors import LogError

    found: list[tuple[Wanted, Log | Exception, str | None]] = []
    for each in wanted:
        stray = None
        try:
            lies = log_dir.topic_id(each.key)
            if lies is not None and lies != each.topic_id:
                stray = log_dir.put_aside(each.key)
            found.append((each, open_wanted(log_dir, each), stray))
        except (LogError, OSError) as problem:
            found.append((each, problem, stray))
    return found


def topic_ids(log_dir: LogDir, keys: list[TopicPartition]) -> dict[TopicPartition, UUID | None]:
    """The topic ids of logs; None for one that has none."""
    return {key: log_dir.topic_id(key) for key in keys}
