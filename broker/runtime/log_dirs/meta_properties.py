"""The owner of a log dir, in the file meta.properties as in Kafka: the cluster and the broker that
first opened it.

Without this file, a broker with the log dir of another broker or another cluster would treat all
logs in it as logs of topics that do not exist.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from kstore.config.properties import parse_properties
from kstore.log.errors import LogStorageError, NewerFormatError
from kstore.log.segments.segment_names import parse_directory_name
from kstore.private_files import UnsafeFileError, open_private

__all__ = ["claim_log_dirs", "write_durably"]

FILE = "meta.properties"
VERSION = "0"


def claim_log_dirs(paths: Sequence[str], cluster_id: str, node_id: int) -> None:
    """Write the owner into each log dir. Raises LogStorageError if one has another owner."""
    mine = {"version": VERSION, "broker.id": str(node_id), "cluster.id": cluster_id}
    for folder in paths:
        path = os.path.join(folder, FILE)
        written = _read(path)
        if not written.get("version", VERSION).isdigit() or int(written.get("version", "0")) > 1:
            raise NewerFormatError(path, f"version={written['version']}", "version=0 and 1")
        for name, what in (("cluster.id", "cluster"), ("broker.id", "broker")):
            # Version 0.1.0 may have written the cluster's features after the id (registration.py).
            if written.get(name, mine[name]).partition(" ")[0] != mine[name]:
                raise LogStorageError(
                    f"{folder} belongs to {what} {written[name]}, and this is {what} {mine[name]}: "
                    f"set log.dirs, node.id or the coordination store right, or remove {path} and "
                    "the logs there to give those up"
                )
        if not written:
            _refuse_logs_of_nobody(folder)
            write_durably(path, "".join(f"{name}={value}\n" for name, value in mine.items()))


def _refuse_logs_of_nobody(folder: str) -> None:
    """Refuse logs that no cluster has written: those of a single broker, or of an embedded log."""
    found = sorted(name for name in os.listdir(folder) if parse_directory_name(name) is not None)
    if found:
        raise LogStorageError(
            f"{folder} has logs that no cluster knows ({found[0]}, say): give this broker a folder "
            "of its own in log.dirs, and copy from a broker that serves the old one alone, or "
            "remove those logs"
        )


def _read(path: str) -> dict[str, str]:
    try:
        with os.fdopen(_opened(path, os.O_RDONLY), encoding="utf-8") as file:
            return {entry.key: entry.value for entry in parse_properties(file.read(), path)}
    except FileNotFoundError:
        return {}


def write_durably(path: str, text: str) -> None:
    """Write a file that only this user may read, completely or not at all. Raises OSError."""
    unfinished = path + ".tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with os.fdopen(_opened(unfinished, flags), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)


def _opened(path: str, flags: int) -> int:
    try:
        return open_private(path, flags)
    except UnsafeFileError as error:
        raise LogStorageError(error.errno, str(error)) from error
