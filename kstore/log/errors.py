"""The errors of the embedded log: one exception class for each. After any of them the log can still
be used, except that a closed log stays closed. Each message says what is wrong and what to do.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence

from kstore.errors.codes import ErrorCode
from kstore.private_files import UnsafeFileError

__all__ = [
    "CorruptBatchError", "CorruptLogError", "CursorInUseError", "DiskFullError",
    "InvalidProduceOffsetError", "InvalidTimestampError", "LeaseLostError", "LogClosedError",
    "LogDirLockedError", "LogError", "LogNotFoundError", "LogStorageError", "NotKeeperError",
    "OffsetOutOfRangeError", "ProducerStateError", "QueueStateError", "ReadOnlyLogError",
    "RecordTooLargeError", "SnapshotError", "UnexpectedOffsetError", "append_error",
    "closed_error", "lost_sync", "storage_error", "storage_errors",
]  # fmt: skip


class LogError(Exception):
    """Base class of the embedded log's errors. ``error_code`` is Kafka's number for the error."""

    error_code: int = ErrorCode.UNKNOWN_SERVER_ERROR


class LogClosedError(LogError):
    """The log or its log dir is closed."""

    error_code = ErrorCode.KAFKA_STORAGE_ERROR


class LogNotFoundError(LogError):
    """The log dir, or the log in it, does not exist, and the call did not ask to create it."""

    error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class ReadOnlyLogError(LogError):
    """A log that was opened with ``read_only=True`` cannot be changed."""

    error_code = ErrorCode.KAFKA_STORAGE_ERROR


class LogDirLockedError(LogError):
    """Another process has this log dir open for writing; ``holder`` identifies it."""

    error_code = ErrorCode.KAFKA_STORAGE_ERROR

    def __init__(self, path: str, holder: str, *, shared: bool = False) -> None:
        super().__init__(
            f"the log dir {path} is in use by {holder}, which did not open it as shared: "
            "close it there, or open it with shared=True in both processes"
            if shared
            else f"the log dir {path} is in use by {holder}: close it there, open it with "
            "shared=True in all of them, or open it here with read_only=True"
        )
        self.path = path
        self.holder = holder

    @property
    def for_commands(self) -> str:
        """The same for a command: its user can't pass arguments of `open_log`."""
        return f"the log dir {self.path} is in use by {self.holder}: stop it, or use another folder"


class NotKeeperError(LogError):
    """Of the processes that share a log dir, one does its maintenance. Only that process may
    truncate, compact and delete.
    """

    def __init__(self, name: str, keeper: str) -> None:
        super().__init__(
            f"{name} is shared, and {keeper} does its maintenance: truncate, compact and delete "
            "there, or here once it has closed the log dir"
        )


class OffsetOutOfRangeError(LogError):
    """The offset is below the log start offset or above the end of the log."""

    error_code = ErrorCode.OFFSET_OUT_OF_RANGE

    def __init__(self, name: str, offset: int, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(
            f"offset {offset} of {name} is out of range: the log has offsets "
            f"{log_start_offset} to {log_end_offset} (exclusive)"
        )
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class RecordTooLargeError(LogError):
    """A batch is larger than ``max_message_bytes``, or the batches do not fit in one segment."""

    error_code = ErrorCode.MESSAGE_TOO_LARGE


class CorruptBatchError(LogError):
    """The bytes to append are not valid record batches."""

    error_code = ErrorCode.CORRUPT_MESSAGE


class InvalidTimestampError(LogError):
    """A record's timestamp is too far from the current time, or its type is LogAppendTime, which
    clients may not send.
    """

    error_code = ErrorCode.INVALID_TIMESTAMP


class ProducerStateError(LogError):
    """A producer's sequence number, epoch or transaction does not match its state in the log."""

    error_code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class InvalidProduceOffsetError(LogError):
    """The given offsets start below the log end offset (KIP-391). ``log_end_offset`` is the first
    offset that can be used.
    """

    error_code = ErrorCode.INVALID_PRODUCE_OFFSET

    def __init__(self, name: str, log_end_offset: int) -> None:
        super().__init__(
            f"the given offset is below the end of {name}: "
            f"append at {log_end_offset} or later; earlier records are already in the log"
        )
        self.log_end_offset = log_end_offset


class CursorInUseError(LogError):
    """Another cursor with this name is in use. ``process`` is the id of its process."""

    def __init__(self, name: str, tp: str, process: int) -> None:
        who = "this process" if process == os.getpid() else f"process {process}"
        super().__init__(
            f"cursor {name!r} of {tp} is in use by {who}: close it there, use another name, or "
            "wait for your turn with cursor(..., wait=seconds)"
        )
        self.process = process


class LeaseLostError(LogError):
    """The lease of a message ended before the message was settled, so another worker may have it.
    ``offsets`` lists these messages; the call had no effect on them.
    """

    def __init__(self, name: str, offsets: Sequence[int]) -> None:
        shown = ", ".join(map(str, offsets[:5])) + (", ..." if len(offsets) > 5 else "")
        super().__init__(
            f"the lease of offset {shown} of queue {name!r} has expired, or the message was "
            "settled before: work faster, extend() it, or raise lease_s"
        )
        self.offsets = tuple(offsets)


class NewerFormatError(LogError):
    """A newer version of kstore wrote the file."""

    error_code = ErrorCode.KAFKA_STORAGE_ERROR

    def __init__(self, path: str, found: str, known: str) -> None:
        super().__init__(
            f"{path} has format {found}, and this version of kstore reads {known}: use the newer "
            "version that wrote it, or restore a backup from before the upgrade"
        )


class QueueStateError(LogError):
    """A queue's state file cannot be used."""


class UnexpectedOffsetError(LogError):
    """The log does not end at the append's ``expected_offset``. Another writer was faster, or the
    caller has not read everything. Nothing was appended. ``log_end_offset`` is the log's actual
    end.
    """

    error_code = ErrorCode.INVALID_PRODUCE_OFFSET

    def __init__(self, name: str, expected_offset: int, log_end_offset: int) -> None:
        super().__init__(
            f"{name} ends at {log_end_offset}, not at the expected offset {expected_offset}: "
            "nothing was appended; read on to its end and decide again"
        )
        self.expected_offset = expected_offset
        self.log_end_offset = log_end_offset


class SnapshotError(LogError):
    """A snapshot cannot be taken. The message says why."""


class LogStorageError(LogError, OSError):
    """The file system failed. The records of a failed append are not in the log. Exception: if the
    flush failed (flush="always"), they are in the log but may not be on disk.
    """

    error_code = ErrorCode.KAFKA_STORAGE_ERROR


class DiskFullError(LogStorageError):
    """The disk is full, or a quota is used up."""


class CorruptLogError(LogStorageError):
    """A part of a segment is damaged. Records before and after it can be read.

    The offsets ``first_offset`` to ``next_offset`` - 1 cannot be read: continue at ``next_offset``.
    Both are -1 if unknown.
    """

    error_code = ErrorCode.CORRUPT_MESSAGE

    def __init__(
        self,
        segment: str,
        position: int,
        reason: str = "the batch is damaged",
        *,
        first_offset: int = -1,
        next_offset: int = -1,
    ) -> None:
        advice = "records before it can be read"
        if next_offset >= 0:
            advice = (
                f"offsets {first_offset} to {next_offset - 1} cannot be read; continue at "
                f"{next_offset}, and see `kstore log verify --repair`"
            )
        super().__init__(errno.EIO, f"{segment} is damaged at byte {position}: {reason}; {advice}")
        self.segment = segment
        self.position = position
        self.first_offset = first_offset
        self.next_offset = next_offset


_SENTENCES: dict[int, tuple[type[LogError], str]] = {
    ErrorCode.CORRUPT_MESSAGE: (
        CorruptBatchError,
        "the bytes are not whole record batches with the right checksum",
    ),
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: (
        CorruptBatchError,
        "the batch is not of magic 2, the only format that is stored",
    ),
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: (
        ProducerStateError,
        "the producer's sequence number does not follow its last one",
    ),
    ErrorCode.INVALID_PRODUCER_EPOCH: (
        ProducerStateError,
        "the producer's epoch is older than its latest one",
    ),
    ErrorCode.INVALID_TXN_STATE: (
        ProducerStateError,
        "the producer has an open transaction and wrote outside it",
    ),
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: (
        ProducerStateError,
        "the transaction marker comes from a coordinator that was replaced",
    ),
    ErrorCode.NOT_LEADER_OR_FOLLOWER: (
        LogError,
        "the leader epoch is below that of the last batch: use the same or a larger one",
    ),
    ErrorCode.KAFKA_STORAGE_ERROR: (
        LogClosedError,
        "the log is closed or read-only: open it for writing",
    ),
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: (
        CorruptBatchError,
        "the batch has an unknown compression type or unknown attributes",
    ),
    ErrorCode.INVALID_RECORD: (
        CorruptBatchError,
        "a record in the batch is malformed, or is a control record",
    ),
    ErrorCode.INVALID_TIMESTAMP: (
        InvalidTimestampError,
        "a timestamp is outside message.timestamp.before.max.ms and .after.max.ms of the clock, "
        "or of type LogAppendTime",
    ),
}


def append_error(
    code: int, name: str, size_bytes: int, limit_bytes: int, log_end_offset: int
) -> LogError:
    """The exception for a Kafka error code that an append returned."""
    if code == ErrorCode.INVALID_PRODUCE_OFFSET:
        return InvalidProduceOffsetError(name, log_end_offset)
    if code == ErrorCode.MESSAGE_TOO_LARGE:
        return RecordTooLargeError(
            f"a batch for {name} ({size_bytes} bytes were given) is larger than max.message.bytes "
            f"({limit_bytes}): send smaller records or raise max_message_bytes"
        )
    if code == ErrorCode.RECORD_LIST_TOO_LARGE:
        return RecordTooLargeError(
            f"{size_bytes} bytes for {name} do not fit in one segment: append them in parts, "
            "or raise segment_bytes"
        )
    kind, sentence = _SENTENCES.get(code, (LogError, f"the append failed with error code {code}"))
    error = kind(f"cannot append to {name}: {sentence}")
    error.error_code = code
    return error


def lost_sync(error: OSError, name: str) -> LogStorageError:
    """A LogStorageError for a log whose data could not be forced to disk."""
    return LogStorageError(
        error.errno,
        f"flushing {name} failed ({error.strerror}): acknowledged records are on disk, and "
        "no more are acknowledged; check the disk, close the log and open it again",
        error.filename,
    )


@contextlib.contextmanager
def storage_errors(doing: str) -> Iterator[None]:
    """Turn every OSError in this block into a LogStorageError that describes the operation."""
    try:
        yield
    except LogStorageError:
        raise
    except OSError as error:
        raise storage_error(error, doing) from error


def closed_error(name: str, opened_by: int) -> LogClosedError:
    """The LogClosedError of a log or log dir that process ``opened_by`` has opened."""
    if opened_by == os.getpid():
        return LogClosedError(f"{name} is closed: open it again")
    return LogClosedError(
        f"{name} was opened by process {opened_by}, and is not shared with the "
        "processes that it forks: open it here when it is closed there, or open it with "
        "read_only=True"
    )


_ADVICE = {
    errno.ENOSPC: "free some space and try again",
    errno.EDQUOT: "free some space and try again",
    errno.EEXIST: "a file has this name",
    errno.ENOTDIR: "a part of this path is a file",
    errno.EACCES: "check the owner and the mode of the directory",
    errno.EROFS: "the file system is mounted for reading only",
}


def storage_error(error: OSError, doing: str) -> LogStorageError:
    """A LogStorageError (or DiskFullError) that describes the operation in which ``error``
    occurred.
    """
    if isinstance(error, LogStorageError):
        return error
    if isinstance(error, UnsafeFileError):
        return LogStorageError(error.errno, str(error))
    full = error.errno in {errno.ENOSPC, errno.EDQUOT}
    kind = DiskFullError if full else LogStorageError
    advice = _ADVICE.get(error.errno or 0, "the log continues when this works again")
    return kind(error.errno, f"{doing} failed ({error.strerror}): {advice}", error.filename)
