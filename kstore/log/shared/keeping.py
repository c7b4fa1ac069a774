"""The maintenance of a log dir that several processes write to: which process takes over when its
keeper is gone, and the logs that a keeper maintains for others.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kstore.log.index.index_store import IndexStore
from kstore.log.segments.segment_names import parse_directory_name
from kstore.log.shared.catching_up import PAGE_NAME
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.log.local.local_log import LocalLog
    from kstore.log.local.log_dir_state import LogDirState
    from kstore.log.shared.membership import Membership

__all__ = ["in_use", "take_over"]

_HEAD_BYTES = 28
_INCARNATION_AT = 12


def take_over(state: LogDirState, logs: Iterable[LocalLog], *, was_closed: bool) -> None:
    """This process is the keeper now: it writes the index, and it loads each log again, because
    only then it knows the index's state.
    """
    before = state.index
    state.index = IndexStore(state.path, read_only=False, was_closed=was_closed)
    before.close()
    state.keeper = True
    for log in logs:
        page = log.core.page
        if page is not None and not page.deleted:
            page.keeper = True
            log.core.forget_all()
            with log.core:
                pass  # it is loaded by now
            log.note_dirty()


def in_use(directory: str, members: Membership) -> list[TopicPartition]:
    """The logs of the dir that a process has open, or has had open since the first process
    joined.
    """
    found = []
    for name in os.listdir(directory):
        key = parse_directory_name(name)
        if key is None:
            continue
        try:
            with open(os.path.join(directory, name, PAGE_NAME), "rb") as file:
                head = file.read(_HEAD_BYTES)
        except FileNotFoundError:
            continue
        if head[_INCARNATION_AT:] == members.incarnation:
            found.append(key)
    return found
