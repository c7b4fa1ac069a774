"""Turns a text file into keyed records: one per line, or one per stanza of a Debian control file.

A file is read as a stream, in bytes: nothing is decoded, so every byte of a line is preserved.
Nothing here depends on Kafka.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["DEBIAN_PACKAGES", "SourceError", "SourceFile", "SourceRecord", "open_source"]

DEBIAN_PACKAGES = Path("/var/lib/dpkg/status")
_PROBE_BYTES = 64 * 1024


class SourceError(Exception):
    """The file can't be loaded; the message says which, why, and what to do."""


class SourceRecord(NamedTuple):
    """One record of the file: its key, its value, and the line where it begins (from 1)."""

    key: bytes
    value: bytes
    line: int


class SourceFile(NamedTuple):
    """A file that was checked: its path, how it is split, and its topic's name."""

    path: Path
    is_stanzas: bool
    topic: str
    size_bytes: int

    @property
    def unit(self) -> str:
        """The unit of a record, for people."""
        return "stanza, keyed by package" if self.is_stanzas else "line, keyed by line number"

    def records(self) -> Iterator[SourceRecord]:
        """Read the file from its start; raises SourceError if it can't be read any more."""
        try:
            with open(self.path, "rb", buffering=1 << 20) as stream:
                yield from _stanzas(stream) if self.is_stanzas else _lines(stream)
        except OSError as error:
            raise SourceError(f"{self.path} can't be read: {error.strerror}") from None


def open_source(path: str | os.PathLike[str] | None) -> SourceFile:
    """Check a file before anything is started; ``None`` selects the machine's Debian package list.

    Raises SourceError for a file that is missing, unreadable, not regular, empty, or not text.
    """
    if path is None and not DEBIAN_PACKAGES.exists():
        raise SourceError(
            f"this machine has no Debian package list ({DEBIAN_PACKAGES}): give a text file, as "
            "in "
            "`make run FILE=some.log`"
        )
    source = DEBIAN_PACKAGES if path is None else Path(path)
    try:
        status = source.stat()
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise SourceError(f"{source} is {kind}; it must be a file, because it is read twice")
        with open(source, "rb") as stream:
            start = stream.read(_PROBE_BYTES)
    except FileNotFoundError:
        raise SourceError(f"{source} does not exist") from None
    except OSError as error:
        raise SourceError(f"{source} can't be read: {error.strerror}") from None
    if not start.strip():
        raise SourceError(f"{source} is empty: there is nothing to load")
    if b"\0" in start:
        raise SourceError(
            f"{source} is not text: it has a zero byte at {start.index(0)}; give a text file"
        )
    is_stanzas = start.startswith(b"Package: ")
    return SourceFile(source, is_stanzas, _topic_name(source), status.st_size)


def _topic_name(path: Path) -> str:
    """Make a valid topic name (letters, digits, dot, dash, underscore; at most 249) of a file's
    name.
    """
    name = "dpkg-status" if path == DEBIAN_PACKAGES else path.name
    legal = "".join(c if c.isascii() and (c.isalnum() or c in ".-_") else "-" for c in name)
    legal = legal.strip(".")[:249]
    return legal or "file"


def _lines(stream: Iterator[bytes]) -> Iterator[SourceRecord]:
    for number, line in enumerate(stream, start=1):
        yield SourceRecord(b"%d" % number, line.removesuffix(b"\n"), number)


def _stanzas(stream: Iterator[bytes]) -> Iterator[SourceRecord]:
    """Split at blank lines; a stanza without a Package field is keyed by its line number."""
    gathered: list[bytes] = []
    key, first = b"", 1
    for number, line in enumerate(stream, start=1):
        if line.strip():
            if not gathered:
                key, first = b"%d" % number, number
            if line.startswith(b"Package:"):
                key = line.removeprefix(b"Package:").strip()
            gathered.append(line)
        elif gathered:
            yield SourceRecord(key, b"".join(gathered), first)
            gathered = []
    if gathered:
        yield SourceRecord(key, b"".join(gathered), first)
