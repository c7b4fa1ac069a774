"""Class-data sharing: the JVM of a test run writes its classes to a file, and the JVM of the next
run maps them from there, instead of loading and verifying them. This saves Spark's JVM much CPU
time.

A JVM writes the file when it ends, which takes as much CPU time as one later JVM saves. So the
first `make test` of a checkout does not write it. CI never does, because its checkouts are new.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from tests.times import LAST_RUN

FOLDER = LAST_RUN.parent / "class-data"
UNWANTED = "CI"


class ClassData:
    """The file of JVMs with this name. If a file of ``depends`` changes, a new one is written."""

    def __init__(self, name: str, *depends: Path) -> None:
        said = [f"{path} {path.stat().st_mtime_ns}" for path in depends]
        key = hashlib.sha256("\n".join(said).encode()).hexdigest()[:16]
        self._file = FOLDER / f"{name}-{key}.jsa"
        self._new = self._file.with_suffix(f".{os.getpid()}")

    def flags(self) -> list[str]:
        """The flags with which a JVM uses the file, or writes it; none if it does neither."""
        if self._file.exists():
            return [f"-XX:SharedArchiveFile={self._file}", "-Xlog:disable"]
        if os.environ.get(UNWANTED) or not LAST_RUN.exists():
            return []
        FOLDER.mkdir(parents=True, exist_ok=True)
        return [f"-XX:ArchiveClassesAtExit={self._new}", "-Xlog:disable"]

    def keep(self) -> None:
        """Call this after the JVM has ended: if it wrote a file, that replaces the older ones, also
        those of runs that were killed before they came here.
        """
        if self._new.exists():
            for older in FOLDER.glob(f"{self._file.name.rpartition('-')[0]}-*"):
                if older != self._new and not _is_written(older):
                    older.unlink(missing_ok=True)
            self._new.rename(self._file)


def _is_written(file: Path) -> bool:
    """Whether another run, which still runs, may write it."""
    pid = file.suffix.removeprefix(".")
    if not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
