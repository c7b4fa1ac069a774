"""The formats of the files in a log dir: the format of each file, and the formats that this version
reads.

A format gets a new number when an older version would misread the file. The table has all formats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from kstore.cli.upgrade.finding import Finding
from kstore.config.properties import parse_properties
from kstore.log.segments.segment_names import CURSORS_FOLDER, LOG_SUFFIX, METADATA_NAME

__all__ = ["FORMATS", "check_formats"]

ADVICE = "use the newer version that wrote it, or restore a backup from before the upgrade"
UNKNOWN = "unknown"
ROOT_KEY = b"\x00\x00/"
SEGMENT_MAGIC_AT = 16


class Format(NamedTuple):
    """A kind of file: its place in a log dir, how to read its format, and the known formats."""

    kind: str
    pattern: str
    read: Callable[[Path], str | None]
    """Returns None if the file is empty and has no format yet."""
    known: tuple[str, ...]
    may_be_newer: bool = False
    """Whether kstore creates the file again if it does not know the format."""


def check_formats(log_dir: Path) -> Iterator[Finding]:
    """Each kind of file, once for each format that it is found in."""
    for row in FORMATS:
        found: dict[str, int] = {}
        for path in log_dir.glob(row.pattern):
            if path.is_file():
                version = row.read(path)
                if version is not None:
                    found[version] = found.get(version, 0) + 1
        for version, count in sorted(found.items()):
            good = version in row.known or row.may_be_newer
            item = f"{log_dir}: {row.kind} ({count} file{'s' * (count > 1)})"
            known = ", ".join(row.known)
            yield Finding("format", item, version, known, good, "" if good else ADVICE)


def _head(path: Path, size: int) -> bytes:
    with open(path, "rb") as file:
        return file.read(size)


def _segment(path: Path) -> str | None:
    head = _head(path, SEGMENT_MAGIC_AT + 1)
    if len(head) <= SEGMENT_MAGIC_AT or not any(head):
        return None  # empty, or preallocated space
    return str(head[SEGMENT_MAGIC_AT])


def _by_mark(prefix: bytes, versions: dict[bytes, str]) -> Callable[[Path], str | None]:
    def read(path: Path) -> str | None:
        data = _head(path, len(prefix) + 1)
        if not any(data):
            return None
        if not data.startswith(prefix):
            return UNKNOWN
        mark = data[len(prefix) :]
        return versions.get(mark, mark.decode("ascii", "replace"))

    return read


def _queue(path: Path) -> str | None:
    data = _head(path, 12)
    if not any(data):
        return None
    return str(int.from_bytes(data[8:12], "little")) if data[:7] == b"KSQUEUE" else UNKNOWN


def _properties(path: Path) -> str:
    with open(path, encoding="utf-8") as file:
        entries = {entry.key: entry.value for entry in parse_properties(file.read(), str(path))}
    return entries.get("version", UNKNOWN)


def _metadata(path: Path) -> str:
    first = path.read_text("ascii", "replace").partition("\n")[0]
    return first.removeprefix("version: ") if first.startswith("version: ") else UNKNOWN


def _store(path: Path) -> str | None:
    """The format of the root, which every transaction writes."""
    import lmdb

    try:
        with (
            lmdb.open(str(path.parent), readonly=True, create=False, max_dbs=0) as env,
            env.begin() as txn,
        ):
            root = txn.get(ROOT_KEY)
    except lmdb.Error:
        return UNKNOWN
    return None if root is None else str(root[0])


FORMATS = (
    Format("segments", f"*-*/*{LOG_SUFFIX}", _segment, ("2",)),
    Format("topic ids", f"*-*/{METADATA_NAME}", _metadata, ("0",)),
    Format("work queues", "*-*/queue.*[!d]", _queue, ("1",)),
    Format("cursors", f"{CURSORS_FOLDER}/*", _by_mark(b"KCU", {b"R": "1"}), ("1",)),
    Format("transaction journal", ".transaction", _by_mark(b"kstrtxn", {}), ("1",)),
    Format("owner", "meta.properties", _properties, ("0", "1")),
    Format("coordination store", ".coordination/data.mdb", _store, ("1",)),
    Format("shared coordination store", "data.mdb", _store, ("1",)),
)
"""The index (.kstore.mdb) and the writers' pages (kstore.shared) are created again if their format
is unknown, so nothing depends on their formats.
"""
