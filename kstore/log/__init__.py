"""The embedded log: a durable log of records in a directory, laid out as Kafka's log dirs are, so
that the same directory can be served by ``kstore serve``. It knows no topic beyond its name, no
request and no replica.

May import: kstore._fast.disk, kstore._fast.log, kstore._fast.record, kstore.env, kstore.errors,
    kstore.log.index, kstore.log.local, kstore.log.recovery, kstore.log.repair,
    kstore.log.retention, kstore.log.segments, kstore.private_files,
    kstore.protocol.coordinator_records, kstore.record, kstore.types.
"""

from __future__ import annotations

import os
from typing import Any

from kstore._fast.log.log_core import AppendInfo
from kstore.env import Env
from kstore.log.errors import (
    CorruptBatchError,
    CorruptLogError,
    DiskFullError,
    InvalidProduceOffsetError,
    InvalidTimestampError,
    LogClosedError,
    LogDirLockedError,
    LogError,
    LogNotFoundError,
    LogStorageError,
    OffsetOutOfRangeError,
    ProducerStateError,
    ReadOnlyLogError,
    RecordTooLargeError,
)
from kstore.log.local.recovery_report import RecoveryReport
from kstore.log.log import Log
from kstore.log.log_dir import LogDir
from kstore.log.settings import FlushPolicy, LogConfig

__all__ = [
    "AppendInfo", "CorruptBatchError", "CorruptLogError", "DiskFullError", "FlushPolicy",
    "InvalidProduceOffsetError", "InvalidTimestampError", "Log", "LogClosedError", "LogConfig",
    "LogDir", "LogDirLockedError", "LogError", "LogNotFoundError", "LogStorageError",
    "OffsetOutOfRangeError", "ProducerStateError", "ReadOnlyLogError", "RecordTooLargeError",
    "RecoveryReport", "open_log", "open_log_dir",
]  # fmt: skip


def open_log_dir(
    path: str | os.PathLike[str],
    *,
    read_only: bool = False,
    flush: str = "os",
    flush_interval_ms: int = 1000,
    env: Env | None = None,
    **topic_configs: Any,
) -> LogDir:
    """Open a directory of logs, made if it is not there; ``topic_configs`` are the defaults of its
    logs (``segment_bytes=..``, see LogConfig).

    ``flush`` is when an append is on the disk: "os" (when the system writes it, as Kafka),
    "interval" (within ``flush_interval_ms``) or "always" (before append returns; concurrent
    appends share the wait). Raises LogDirLockedError while another process has it open for
    writing.
    """
    return LogDir(
        os.fspath(path),
        read_only=read_only,
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
    flush: str = "os",
    flush_interval_ms: int = 1000,
    env: Env | None = None,
    **topic_configs: Any,
) -> Log:
    """Open one log in a log directory, both made if they are not there. Closing the log closes the
    directory. Parameters as for ``open_log_dir``.
    """
    log_dir = open_log_dir(
        path,
        read_only=read_only,
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
