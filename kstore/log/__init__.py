"""The embedded log: durable logs in a folder with the layout of a Kafka log dir, which ``kstore
serve`` can serve too. This package knows a topic only by its name, and knows nothing of requests
and replicas.

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
from kstore.env import Env, SystemEnv
from kstore.items import check_bool, check_int
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
from kstore.log.index.index_store import ENVIRONMENT_NAME
from kstore.log.local.recovery_report import RecoveryReport
from kstore.log.log import Log
from kstore.log.log_dir import LogDir
from kstore.log.segments.segment_names import parse_directory_name, segment_bases
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
    """Open a log dir: a folder of logs. The folder is created if it does not exist, unless
    ``read_only`` is True.

    ``flush`` says when an append is on disk:

    - "os" (default, as in Kafka): when the system writes it. Records survive a crash of the
      process.
    - "interval": within ``flush_interval_ms`` milliseconds. A power failure can lose that much.
    - "always": before ``append`` returns. Concurrent appends share a flush.

    One process may write to a log dir, while others read it with ``read_only=True``. On Linux
    several processes of one machine may write to it if each of them sets ``shared=True``.
    ``topic_configs`` are the default settings of the logs, such as ``segment_bytes=2**20``: see
    ``LogConfig``. ``env`` replaces the clock and the file system in tests.

    Raises LogDirLockedError if another process has the log dir open for writing and not both share
    it, LogNotFoundError if it does not exist and ``read_only`` is True, TypeError or ValueError for
    an invalid setting, and LogStorageError if the file system fails.
    """
    check_bool("read_only", read_only)
    check_bool("shared", shared)
    check_int("flush_interval_ms", flush_interval_ms, 1, 2**31 - 1)
    return LogDir(
        _checked_path(path, env or SystemEnv()),
        read_only=read_only,
        shared=shared,
        flush=flush,
        flush_interval_ms=flush_interval_ms,
        env=env,
        config=LogConfig().with_changes(**topic_configs),
    )


def _checked_path(path: str | os.PathLike[str], env: Env) -> str:
    """The path. Raises TypeError or ValueError for one that cannot be meant: below a partition's
    segment files, a second log would begin unnoticed.
    """
    folder = os.fspath(path)
    if not isinstance(folder, str):
        raise TypeError(f"the path is the bytes {folder!r}: pass a str or a Path")
    if not folder:
        raise ValueError("the path is empty: pass the path of a folder")
    try:
        names = env.fs.listdir(folder)
    except OSError:
        return folder  # opening it reports this
    if segment_bases(names) and ENVIRONMENT_NAME not in names:
        log_dir, name = os.path.split(os.path.abspath(folder))
        key = parse_directory_name(name)
        which = "" if key is None else f", with topic={key.topic!r} and partition={key.partition}"
        raise ValueError(
            f"{folder} has a partition's segment files, so it is not a log dir: open the log dir "
            f"that contains it ({log_dir}){which}"
        )
    return folder


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
    """Open one log: ``partition`` of ``topic`` in the log dir ``path``. Both are created if they do
    not exist, unless ``read_only`` is True. Closing the log closes the log dir. The other
    parameters and the errors are as for ``open_log_dir``.

    Example: ``with kstore.open_log("data/orders", flush="always") as log: log.append(b"paid")``.
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
