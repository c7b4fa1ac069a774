"""How a log that several processes write to applies the changes of the others. The core applies
their appends. This module applies rolls, deletions of segments at the start, truncation and
cleaning, and handles what a killed process left after its last whole append.
"""

from __future__ import annotations

import dataclasses
import json
import os
from typing import TYPE_CHECKING

from kstore._fast.log.log_segment import LogSegment
from kstore._fast.shared.shared_page import SharedPage
from kstore.log.errors import LogNotFoundError
from kstore.log.recovery.recovery import load
from kstore.log.segments.segment_names import segment_bases, segment_path
from kstore.log.settings import LogConfig
from kstore.log.transactions.journal import pending_parts, redo
from kstore.private_files import open_private

if TYPE_CHECKING:
    from kstore.log.local.local_log import LocalLog
    from kstore.log.local.recovery_report import RecoveryReport
    from kstore.log.shared.membership import Membership

__all__ = ["PAGE_NAME", "catch_up", "join", "shared_config"]

TRIES = 20
PAGE_NAME = "kstore.shared"
"""The page of a log, in its partition's folder."""


def join(log: LocalLog, members: Membership, *, adopts: bool = False) -> None:
    """Open a log that other processes may also have open; one that no process has open is
    recovered. No other process opens one meanwhile.

    ``adopts``: only for its maintenance, with the settings of the processes that opened it.
    """
    core = log.core
    file = open_private(os.path.join(log.path, PAGE_NAME), os.O_RDWR | os.O_CREAT)
    try:
        page = SharedPage(file, log.path, members.incarnation)
    finally:
        os.close(file)
    page.keeper = members.is_keeper
    if page.deleted:
        raise LogNotFoundError(f"{log.topic_partition} was just deleted: open it again")
    is_new = page.needs_recovery and not page.text
    log.follow_page = catch_up
    core.share(page)
    if adopts and page.text:
        log.configure(shared_config(page))
    else:
        note_config(log)
    with core:
        pass  # it is loaded by now
    if is_new:
        members.count_page()


def note_config(log: LocalLog) -> None:
    """Make the process that does the maintenance use this one's settings."""
    page = log.core.page
    if page is not None:
        text = json.dumps(dataclasses.asdict(log.config)).encode()
        if text != page.text:
            page.text = text


def shared_config(page: SharedPage) -> LogConfig:
    """The settings with which a log was last opened."""
    fields = json.loads(page.text)
    fields["cleanup_policy"] = tuple(fields["cleanup_policy"])
    return LogConfig(**fields)


def catch_up(log: LocalLog) -> None:
    """Bring a log to the state of its page. Both of its locks are held."""
    core, page = log.core, log.core.page
    assert page is not None
    if page.deleted:
        raise LogNotFoundError(f"{log.topic_partition} was deleted by another process")
    recovers, before = page.needs_recovery, page.log_end_offset
    if core.generation != page.generation or not core.segments or not _follows(log, page):
        _load(log, page, recovers=recovers)
    _follow_start(log, page.log_start_offset, keeps=page.keeper)
    core.set_durable_offset(min(page.durable_offset, core.log_end_offset))
    core.set_offsets(core.log_start_offset, core.log_end_offset, core.log_end_offset)
    if recovers and not core.closed:  # otherwise that is for the next process
        redo(log, pending_parts(log.env.fs, log.directory.path))
        page.needs_recovery = False
        if before:
            _tell(log, f"a process was killed as it wrote: it continues at {core.log_end_offset}")
    if page.keeper:
        log.note_dirty()


def _tell(log: LocalLog, sentence: str) -> None:
    from logging import getLogger

    getLogger("kstore.log").warning("%s: %s", log.topic_partition, sentence)


def _load(log: LocalLog, page: SharedPage, *, recovers: bool) -> None:
    """Load the log again."""
    core = log.core
    is_first = not core.segments
    # A live keeper may be working on it: it would miss what is finished or removed here.
    takes_over = page.keeper and (is_first or core.generation < 0)
    log.finishes_swaps = takes_over or page.keeper_died
    report = _load_what_stays(log)
    if is_first:
        log.recovery = report
    if recovers and report.truncated_bytes:
        _tell(log, f"opening it found {report}")
    end = core.log_end_offset
    if page.generation and not recovers:
        core.durable_offset = min(page.durable_offset, end)
    core.durable_offset = min(core.durable_offset, end)
    log.disk.group.rewind(core.durable_offset)


def _load_what_stays(log: LocalLog) -> RecoveryReport:
    """Load it; the keeper deletes the files of segments after it has released the lock."""
    for _ in range(TRIES):
        try:
            return load(log, log.directory.index.state(log.name))
        except FileNotFoundError:
            continue
    return load(log, log.directory.index.state(log.name))


def _follows(log: LocalLog, page: SharedPage) -> bool:
    """`_follow`; also returns False if the known part was deleted."""
    try:
        return _follow(log, page)
    except FileNotFoundError:
        return False


def _follow(log: LocalLog, page: SharedPage) -> bool:
    """Apply what follows the known part; returns False if that fails, so that the log must be
    loaded again. After a kill: up to the last whole batch, and the rest is truncated.
    """
    core, fs = log.core, log.env.fs
    recovers = page.needs_recovery
    while True:
        active = core.active
        file = active.handle_or_open()
        ends_here = active.base_offset == page.active_base and not recovers
        end = page.position if ends_here else fs.file_size(active.path)
        position, _status = core.scan(active, active.size_bytes, end)
        if ends_here:
            if position == end:
                file.follow(end)
            break
        following = [b for b in segment_bases(fs.listdir(log.path)) if b > active.base_offset]
        file.follow(end)
        if following:
            if position < end:
                return False
            _go_on(log, following[0])
        elif recovers:
            if position < end:
                file.truncate(position)
                _tell(log, f"{end - position} bytes of a torn write were truncated")
            break
        else:
            return False
    core.set_offsets(core.log_start_offset, core.active.next_offset, core.active.next_offset)
    return position == end or recovers


def _go_on(log: LocalLog, base_offset: int) -> None:
    """Another process has started a segment."""
    path = segment_path(log.path, base_offset)
    now_ms = log.directory.now_ms()
    log.take_segment(LogSegment(base_offset, path, log.opener, created_ms=now_ms))


def _follow_start(log: LocalLog, start: int, *, keeps: bool) -> None:
    """Records were deleted from the start. ``keeps``: remaining files of them are left for
    retention to delete; a killed keeper may not have done it.
    """
    core = log.core
    if start > core.log_start_offset:
        start = min(start, core.log_end_offset)
        core.set_log_start_offset(start)
        core.epochs.truncate_from_start(start)
        core.producers.drop_aborted_before(start)
    gone = sum(1 for s in core.segments[1:] if s.base_offset <= core.log_start_offset)
    if gone and not keeps:
        core.shift_segments(core.segments[gone:])
