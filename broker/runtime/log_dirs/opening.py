"""How a broker opens a log dir."""

from __future__ import annotations

import logging
import os

from kstore.log import LogDir, open_log_dir
from kstore.log.segments.segment_names import CURSORS_FOLDER
from kstore.private_files import others_write

__all__ = ["open_dir"]

LOGGER = logging.getLogger("kstore.broker")


def open_dir(path: str, *, flush: str, flush_interval_ms: int, replicated: bool) -> LogDir:
    """Open and lock a log dir. Raises the errors of `open_log_dir`."""
    log_dir = open_log_dir(path, flush=flush, flush_interval_ms=flush_interval_ms)
    problem = others_write(path)
    if problem is not None:
        LOGGER.warning("other users can change records: %s", problem)
    if not replicated and os.path.isdir(os.path.join(path, CURSORS_FOLDER)):
        _take_over_cursors(log_dir)
    log_dir.replicated = replicated
    return log_dir


def _take_over_cursors(log_dir: LogDir) -> None:
    """Convert cursors of an embedded log to committed offsets of consumer groups."""
    given = log_dir.committed_offsets.give_to_groups()
    for log in log_dir.open_logs():
        log_dir.close_log(log)
    if given:
        LOGGER.info("%d cursors in %s are now consumer groups", given, log_dir.path)
