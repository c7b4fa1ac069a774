"""The functions that the log manager runs in the threads of the log dirs, for some logs at a time.
This file does not know which log dir has which log.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from uuid import UUID

from kstore.broker.state.work import ROWS_BETWEEN
from kstore.log.errors import LogError
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.log import Log, LogDir
    from kstore.log.settings import LogConfig

__all__ = [
    "MarkRemovalError",
    "Taken",
    "Wanted",
    "all_taken",
    "copy_serves",
    "open_each",
    "open_wanted",
    "parts",
    "pieces",
    "topic_ids",
]

T = TypeVar("T")
REPEATS_AFTER_S = 1.0
MOST_ATTEMPTS = 30
LOGS_AT_ONCE = 16
"""How many logs one call in a log dir's thread opens or removes. Other calls run in between."""


class Wanted(NamedTuple):
    """A log to open."""

    key: TopicPartition
    topic_id: UUID
    config: LogConfig
    is_new: bool = True
    """Whether the log may be created. Otherwise a missing log is assumed to be in a log dir that
    has failed, if there is one.
    """


class Taken(NamedTuple):
    """The remains of deleted logs: folders in a log dir."""

    log_dir: LogDir
    folders: list[str]


class MarkRemovalError(LogError):
    """Neither the old log of a partition nor the mark of its copy can be removed."""


async def copy_serves(
    key: TopicPartition,
    target: LogDir,
    taking: asyncio.Future[list[str]],
    unmark: Callable[[], Awaitable[object]],
    failed: Container[str],
    report: Callable[[str], object],
) -> list[str]:
    """Complete a move: the copy in the log dir ``target`` has replaced the partition's log. Wait
    until the old log is taken away, and remove the mark of the copy. Returns the folders whose
    files remain. Raises LogError or OSError if the old log cannot be taken away.

    One of the two is enough: after neither, the next start would delete the copy. If neither
    succeeds, ``unmark`` is repeated; after many attempts the log dir fails. Raises MarkRemovalError
    if it has failed.
    """
    await asyncio.wait([taking])
    stays = taking.exception()
    attempts = 0
    while True:
        try:
            await unmark()
            break
        except (LogError, OSError) as problem:
            attempts += 1
            if stays is None:
                report(
                    f"{key} is served from {target.path}, but the mark of its copy can't be "
                    f"removed: {problem}; the next start removes it"
                )
                break
            if target.path in failed:
                raise MarkRemovalError(f"{stays}; {problem}") from problem
            words = "neither its old log nor the mark of its copy can be removed"
            if attempts == 1:
                report(
                    f"{key} can't be written: {words}, so after a crash the old log would be "
                    f"served: {problem}"
                )
            if attempts == MOST_ATTEMPTS:
                why = f"{key} has moved here, and {words}: {problem}"
                target.note_error(OSError(errno.EIO, why))
        await asyncio.sleep(REPEATS_AFTER_S)
    return taking.result()


async def all_taken(
    taking: list[tuple[LogDir, asyncio.Future[list[str]]]],
    moving: Sequence[asyncio.Future[list[str]]] = (),
) -> list[Taken]:
    """The folders whose files remain, once all calls and moves have ended. Raises the error of a
    call.
    """
    await asyncio.gather(*(done for _, done in taking), return_exceptions=True)
    if moving:
        await asyncio.wait(moving)
    return [Taken(log_dir, done.result()) for log_dir, done in taking]


def pieces(items: Sequence[T]) -> Iterator[list[T]]:
    """Split into pieces for one call in a thread."""
    for start in range(0, len(items), LOGS_AT_ONCE):
        yield list(items[start : start + LOGS_AT_ONCE])


def parts(items: Iterable[T]) -> Iterator[list[T]]:
    """Split into pieces that the loop processes without a break."""
    left = iter(items)
    while part := list(islice(left, ROWS_BETWEEN)):
        yield part


def open_wanted(log_dir: LogDir, wanted: Wanted) -> Log:
    """Open or create the log."""
    key, topic_id, config, _ = wanted
    return log_dir.log(key.topic, key.partition, create=True, config=config, topic_id=topic_id)


def open_each(
    log_dir: LogDir, wanted: list[Wanted]
) -> list[tuple[Wanted, Log | Exception, str | None]]:
    """Open each log. Yields the log or the error, and the new name of a folder that belonged to
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
    """The topic ids of logs; None for a log without one."""
    return {key: log_dir.topic_id(key) for key in keys}
