"""Classes of a JVM for the JVM of the next run, which maps them from a file (class-data sharing)
instead of loading and verifying them. Spark's JVM takes much less CPU time so.

A JVM writes the file when it ends, which takes as much as one JVM saves. So the first `make test`
of a checkout writes none, and neither does CI, whose checkouts are new.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from tests.times import LAST_RUN

FOLDER = LAST_RUN.parent / "class-data"
UNWANTED = "CI"


class ClassData:
    """The file of JVMs with this name. ``depends``: files without which its content is another."""

    def __init__(self, name: str, *depends: Path) -> None:
        said = [f"{path} {path.stat().st_mtime_ns}" for path in depends]
        key = hashlib.sha256("\n".join(said).encode()).hexdigest()[:16]
        self._file = FOLDER / f"{name}-{key}.jsa"
        self._new = self._file.with_suffix(f".{os.getpid()}")

    def flags(self) -> list[str]:
        """The flags of a JVM that uses or writes the file, if one does."""
        if self._file.exists():
            return [f"-XX:SharedArchiveFile={self._file}", "-Xlog:disable"]
        if os.environ.get(UNWANTED) or not LAST_RUN.exists():
            return []
        FOLDER.mkdir(parents=True, exist_ok=True)
        return [f"-XX:ArchiveClassesAtExit={self._new}", "-Xlog:disable"]

    def keep(self) -> None:
        """The JVM has ended: the file that it may have written replaces older ones."""
        if self._new.exists():
            for older in FOLDER.glob(f"{self._file.name.rpartition('-')[0]}-*.jsa"):
                older.unlink(missing_ok=True)
            self._new.rename(self._file)
