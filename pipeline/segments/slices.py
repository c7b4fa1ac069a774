"""What the runs of an archive have archived: the rows below its folder slices. It also has the
errors for files that are missing or can't be read. pipeline/jobs/layout.py describes the layout.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kstore.pipeline.errors import PipelineError
from kstore.types import TopicPartition

__all__ = ["VERSION", "check_version", "missing_records", "reading", "slice_rows"]

VERSION = 1
"""The newest version of the layout."""


def slice_rows(path: str, columns: Sequence[str] | None = None) -> list[dict[str, Any]] | None:
    """The rows of finished runs with these columns, all by default, and their run; None if there is
    no folder slices. Raises PipelineError.
    """
    folder = Path(path, "slices")
    if not folder.is_dir():
        return None
    found = []
    for of_run in sorted(folder.glob("run=*")):  # no file: it was killed, and does not count
        for file in sorted(of_run.glob("*.parquet")):
            with reading(str(file)):
                rows = pq.ParquetFile(file).read(columns).to_pylist()
            found += [row | {"run": of_run.name.removeprefix("run=")} for row in rows]
    return found


def check_version(path: str, rows: Sequence[dict[str, Any]]) -> None:
    """Raise PipelineError if a run was written in a later version of the layout."""
    newest = max((row["version"] for row in rows), default=VERSION)
    if newest > VERSION:
        raise PipelineError(
            f"archive {path} was written in version {newest} of the layout, and this kstore reads "
            f"up to {VERSION}",
            remedy="Install a newer kstore",
        )


@contextmanager
def reading(
    path: str, place: TopicPartition | None = None, offset: int | None = None
) -> Iterator[None]:
    """Raise PipelineError with the file's name for an error of Arrow or of the system."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise PipelineError(
            f"archive file {os.path.abspath(path)} can't be read: {error}",
            topic=place.topic if place else None,
            partition=place.partition if place else None,
            offset=offset,
            remedy="Take it from a copy of the archive, or archive the topic again to another "
            "folder",
        ) from error


def missing_records(path: str, run: str, topic: str, there: int, archived: int) -> PipelineError:
    """The error for a run whose files do not have the records that it has archived of a topic."""
    return PipelineError(
        f"the files of run {run} in {path} have {there} records, and {archived} were archived",
        topic=topic,
        remedy=f"Copy the whole folder data/run={run} from a copy of the archive, or archive the "
        "topic again to another folder",
    )
