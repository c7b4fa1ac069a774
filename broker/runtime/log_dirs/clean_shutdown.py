"""Whether all that a broker had is still there: the broker epoch of a life that ended with
everything on the disk, in the file .kafka_cleanshutdown of each log dir, as in Kafka.

It needs no removal: it holds only for a life that was the last to register, and only while nobody
has had the log dir since. For that it has the time stamp of the dir's lock file, which whoever
opens the dir writes to, also versions that know nothing of such marks.
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
    """Say in each log dir that the life of this epoch is over, and all of its logs are closed and
    the dir given back. One that can't be written says nothing, and counts as not closed.
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
    """The epoch that all log dirs name, before they are opened; NO_EPOCH if they name none, or not
    the same.
    """
    found = {_read(folder) for folder in folders}
    return found.pop() if len(found) == 1 else NO_EPOCH


def _read(folder: str) -> int:
    path = os.path.join(folder, FILE)
    try:
        lock = os.stat(os.path.join(folder, LOCK_NAME))
        if lock.st_mtime_ns != os.stat(path).st_mtime_ns:
            return NO_EPOCH  # somebody has had the log dir since
        with open(path, encoding="utf-8") as file:
            epoch = json.loads(file.read())["brokerEpoch"]
    except (OSError, ValueError, KeyError, TypeError):
        return NO_EPOCH
    return epoch if isinstance(epoch, int) else NO_EPOCH
