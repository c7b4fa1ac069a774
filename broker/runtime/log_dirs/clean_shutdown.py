"""Detects unclean shutdowns. A run that ends with everything on the disk writes its broker epoch to
the file .kafka_cleanshutdown of each log dir, as in Kafka.

The file need not be deleted. It is valid only for the last registered run, and only if no process
has opened the log dir since. To detect that, it has the timestamp of the log dir's lock file, which
every process that opens the log dir writes, also versions of kstore without this file.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence

from kstore.broker.runtime.log_dirs.meta_properties import write_durably
from kstore.log.errors import LogStorageError
from kstore.log.log_dir_lock import LOCK_NAME

__all__ = ["NO_EPOCH", "mark_clean", "read_ended_epoch"]

FILE = ".kafka_cleanshutdown"
NO_EPOCH = -1
log = logging.getLogger("kstore.broker")


def mark_clean(folders: Sequence[str], broker_epoch: int) -> None:
    """Mark each log dir as closed by the run of this epoch. Call it when all logs are closed and
    the locks are released. A log dir that cannot be written gets no mark, so it counts as not
    closed.
    """
    for folder in folders:
        path = os.path.join(folder, FILE)
        text = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        try:
            stamp = os.stat(os.path.join(folder, LOCK_NAME)).st_mtime_ns
            write_durably(path, text)
            os.utime(path, ns=(stamp, stamp))
        except (OSError, LogStorageError) as problem:
            log.warning("%s is not marked as closed cleanly: %s", folder, problem)


def read_ended_epoch(folders: Sequence[str]) -> int:
    """The epoch in all log dirs, read before they are opened; NO_EPOCH if one has none, or they
    differ.
    """
    found = {_read(folder) for folder in folders}
    return found.pop() if len(found) == 1 else NO_EPOCH


def _read(folder: str) -> int:
    path = os.path.join(folder, FILE)
    try:
        lock = os.stat(os.path.join(folder, LOCK_NAME))
        if lock.st_mtime_ns != os.stat(path).st_mtime_ns:
            return NO_EPOCH  # a process has opened the log dir since
        with open(path, encoding="utf-8") as file:
            epoch = json.loads(file.read())["brokerEpoch"]
    except (OSError, ValueError, KeyError, TypeError):
        return NO_EPOCH
    return epoch if isinstance(epoch, int) else NO_EPOCH
