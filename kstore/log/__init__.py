"""The embedded log: a durable log of records in a directory with the layout of Kafka's log dirs, so
that ``kstore serve`` can serve the same directory. It knows no topic beyond its name, no requests
and no replicas.

May import: kstore._fast.disk, kstore._fast.log, kstore._fast.record, kstore._fast.shared,
    kstore.env, kstore.errors, kstore.items, kstore.log.cursors, kstore.log.index,
    kstore.log.local, kstore.log.queue, kstore.log.recovery, kstore.log.repair,
    kstore.log.retention, kstore.log.segments, kstore.log.shared, kstore.log.transactions,
    kstore.private_files, kstore.record, kstore.types.
"""

from __future__ import annotations

import os
from typing import Any

from kstore._fast.log.append_plan import AppendInfo
from kstore.env import Env
from kstore.log.errors import (
    CorruptBatchError,
    CorruptLogError,
    CursorInUseError,
    DiskFullError,
    InvalidProduceOffsetError,
    InvalidTimestampError,
    LeaseLostError,
    LogClosedError,
    LogDirLockedError,
    LogError,
    LogNotFoundError,
    LogStorageError,
    NotKeeperError,
    OffsetOutOfRangeError,
    ProducerStateError,
    QueueStateError,
    ReadOnlyLogError,
    RecordTooLargeError,
    SnapshotError,
    UnexpectedOffsetError,
)
from kstore.log.local.recovery_report import RecoveryReport
from kstore.log.log import Log
from kstore.log.log_dir import LogDir
from kstore.log.settings import FlushPolicy, LogConfig
from kstore.log.transactions.transaction import Transaction

__all__ = [
    "AppendInfo", "CorruptBatchError", "CorruptLogError", "CursorInUseError", "DiskFullError",
    "FlushPolicy", "InvalidProduceOffsetError", "InvalidTimestampError", "LeaseLostError", "Log",
    "LogClosedError", "LogConfig", "LogDir", "LogDirLockedError", "LogError", "LogNotFoundError",
    "LogStorageError", "NotKeeperError", "OffsetOutOfRangeError", "ProducerStateError",
    "QueueStateError", "ReadOnlyLogError", "RecordTooLargeError", "RecoveryReport", "SnapshotError",
    "Transaction", "UnexpectedOffsetError", "open_log", "open_log_dir",
]  # fmt: skip


def open_log_dir(
    path: str | os.PathLike[str],
    *,
    read_only: bool = False,
    shared: bool = False,
    flush: str = "os",
    flush_interval_ms: int = 1000,
    env: Env | None = None,
    **topic_configs: Any,
) -> LogDir:
    """Open a log dir, which is created if it does not exist. ``topic_configs`` are the defaults of
    its logs (``segment_bytes=..``, see LogConfig).

    ``flush`` says when an append is on disk: "os" (when the system writes it, as in Kafka),
    "interval" (within ``flush_interval_ms``) or "always" (before append returns; concurrent appends
    share the wait). With ``shared=True`` several processes of this machine may write to it; each of
    them must set it (Linux only). Raises LogDirLockedError if another process has it open for
    writing, unless both share it.
    """
    return LogDir(
        os.fspath(path),
        read_only=read_only,
        shared=shared,
        flush=flush,
        flush_interval_ms=flush_interval_ms,
        env=env,
        config=LogConfig().with_changes(**topic_configs),
    )


def open_log(
    path: str | os.PathLike[str],
    *,
    topic: str = "log",
    partition: int = 0,
    read_only: bool = False,
    shared: bool = False,
    flush: str = "os",
    flush_interval_ms: int = 1000,
    env: Env | None = None,
    **topic_configs: Any,
) -> Log:
    """Open one log in a log dir. Both are created if they do not exist. Closing the log closes the
    log dir. Parameters as for ``open_log_dir``.
    """
    log_dir = open_log_dir(
        path,
        read_only=read_only,
        shared=shared,
        flush=flush,
        flush_interval_ms=flush_interval_ms,
        env=env,
        **topic_configs,
    )
    try:
        log = log_dir.log(topic, partition)
    except BaseException:
        log_dir.close()
        raise
    return log.own_directory()
