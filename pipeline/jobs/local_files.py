"""Writes the files of an archive in this process, without Spark; layout.py describes the layout.
The files of a run are below data/_unfinished-<run>, which readers ignore, until all of them are
durable. local_rows.py reads them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kstore.env import sync_dir
from kstore.pipeline.jobs.failure import JobError
from kstore.pipeline.jobs.scans.entries import ENTRY_SCHEMA, PARTITIONED_BY

__all__ = ["RunFiles", "forget_run", "sync_run", "write_slice_rows"]

UNFINISHED = "_unfinished-"
"""The prefix of the names of incomplete folders: Spark and Arrow ignore such names."""
GROUP_BYTES = 32 << 20
"""The limit of one row group in memory."""
HELD_BYTES = 128 << 20
"""The limit of all rows that are not written yet."""
OPEN_FILES = 64
_STORED = pa.schema([field for field in ENTRY_SCHEMA if field.name not in PARTITIONED_BY])


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Raise JobError for an OSError of a write."""
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise JobError(
            f"the archive {path} can't be written: {error.strerror or error}{where}. Solve "
            "this and start the job again: it continues where the archive ends"
        ) from error


class RunFiles:
    """The files of one run of the archive at `path`, in a with block: all of them exist when the
    block ends, and none if it fails.
    """

    def __init__(self, path: str, run: str) -> None:
        self._path = Path(path)
        self._done = self._path / "data" / f"run={run}"
        self._folder = self._path / "data" / f"{UNFINISHED}{run}"
        self._run = run
        self._files: dict[tuple[str, str, str], _File] = {}

    def __enter__(self) -> Self:
        with _writing(self._path):
            _make(self._folder)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                with _writing(self._path):
                    self._finish()
        finally:
            for file in self._files.values():
                file.abandon()
            shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, batch: Any) -> None:
        """Write entries of one kind and topic: a RecordBatch in ENTRY_SCHEMA. Raises JobError."""
        if not batch.num_rows:
            return
        entry, topic = (batch.column(name)[0].as_py() for name in ("entry", "topic"))
        with _writing(self._path):
            for date, rows in _by_date(batch):
                file = self._file((entry, topic, date))
                file.add(rows)
                if file.held >= GROUP_BYTES:
                    self._write(file)
            while sum(file.held for file in self._files.values()) > HELD_BYTES:
                self._write(max(self._files.values(), key=lambda file: file.held))

    def _file(self, at: tuple[str, str, str]) -> _File:
        file = self._files.get(at)
        if file is None:
            parts = (f"{name}={value}" for name, value in zip(PARTITIONED_BY, at, strict=True))
            file = self._files[at] = _File(self._folder.joinpath(*parts), self._run)
        return file

    def _write(self, file: _File) -> None:
        """Write the rows that a file holds. The file that was written least recently is closed if
        too many are open.
        """
        others = [each for each in self._files.values() if each.is_open and each is not file]
        if len(others) >= OPEN_FILES:
            min(others, key=lambda each: each.last_write).close()
        file.write(1 + max((each.last_write for each in others), default=0))

    def _finish(self) -> None:
        for file in self._files.values():
            file.write(0)
            file.close()
        for below, _, _ in os.walk(self._folder, topdown=False):
            sync_dir(below)
        self._folder.rename(self._done)
        sync_dir(self._done.parent)
        _sync_if_allowed(self._path)


class _File:
    """The entries of one folder: usually one Parquet file, more if it was closed in between."""

    def __init__(self, folder: Path, run: str) -> None:
        self.held = 0
        """The bytes of the rows that are not written yet."""
        self.last_write = 0
        self._folder = folder
        self._run = run
        self._rows: list[Any] = []
        self._count = 0
        self._file: Any = None
        self._writer: Any = None

    @property
    def is_open(self) -> bool:
        """Whether a file is being written."""
        return self._writer is not None

    def add(self, rows: Any) -> None:
        """Add rows, to be written later."""
        self._rows.append(rows)
        self.held += rows.nbytes

    def write(self, number: int) -> None:
        """Write the held rows as one row group; `number` increases with each write."""
        if not self._rows:
            return
        if self._writer is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            name = f"part-{self._count:05}-{self._run}.zstd.parquet"
            self._file = open(self._folder / name, "xb")  # noqa: SIM115 - see close
            self._writer = pq.ParquetWriter(self._file, _STORED, compression="zstd")
            self._count += 1
        table = pa.Table.from_batches(self._rows)
        self._rows, self.held, self.last_write = [], 0, number
        self._writer.write_table(table, row_group_size=table.num_rows)

    def close(self) -> None:
        """Finish the file and make it durable."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    def abandon(self) -> None:
        """Close the file after an error, and ignore others."""
        if self._writer is not None:
            with suppress(Exception):  # there is an error already
                self._writer.close()
            with suppress(OSError):
                self._file.close()
            self._writer = None


def _by_date(batch: Any) -> Iterator[tuple[str, Any]]:
    """The rows of each date in their order, with the columns that are stored."""
    dates = batch.column("date").dictionary_encode()
    stored = batch.select(_STORED.names)
    if len(dates.dictionary) == 1:
        yield dates.dictionary[0].as_py(), stored
        return
    for code, date in enumerate(dates.dictionary.to_pylist()):
        yield date, stored.filter(pc.equal(dates.indices, code))


def write_slice_rows(path: str, run: str, rows: Any, check: Callable[[], None]) -> None:
    """Make a run count: call `check`, then rename its slices, a pyarrow.Table, into place in one
    step. Only one process of this machine does so at a time.
    """
    folder = Path(path, "slices")
    unfinished = folder / f"{UNFINISHED}{run}"
    with _writing(Path(path)):
        try:
            _make(unfinished)
            with open(unfinished / f"part-00000-{run}.zstd.parquet", "xb") as file:
                pq.write_table(rows, file, compression="zstd")
                file.flush()
                os.fsync(file.fileno())
            sync_dir(unfinished)
            with _locked(folder):
                check()
                unfinished.rename(folder / f"run={run}")
            sync_dir(folder)
            _sync_if_allowed(path)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def sync_run(path: str, run: str) -> None:
    """Make the files durable that another program has written for a run, before the run counts."""
    data = Path(path, "data")
    with _writing(Path(path)):
        for below, _, names in os.walk(data / f"run={run}", topdown=False):
            for name in names:
                with _if_allowed(), open(Path(below, name), "rb") as file:
                    os.fsync(file.fileno())
            _sync_if_allowed(below)
        _sync_if_allowed(data)
        _sync_if_allowed(path)


def forget_run(path: str, run: str) -> None:
    """Remove the data of a failed run, unless it counts, or it is not known whether it does."""
    try:
        os.stat(Path(path, "slices", f"run={run}"))
    except FileNotFoundError:
        shutil.rmtree(Path(path, "data", f"run={run}"), ignore_errors=True)
    except OSError:
        pass  # there is an error already


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes that do the same; the lock ends with the process."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _make(folder: Path) -> None:
    """Create a folder and its missing parents, and make their names durable."""
    new = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True)
    for each in new:
        _sync_if_allowed(each.parent)


def _sync_if_allowed(folder: str | Path) -> None:
    with _if_allowed():
        sync_dir(folder)


@contextmanager
def _if_allowed() -> Iterator[None]:
    """For the sync of what may belong to another user: a process that may write to a folder may not
    be allowed to open it, and not all file systems can sync folders.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EINVAL):
            raise
