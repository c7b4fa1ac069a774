"""The batch read of files (``path``): segments of a log dir, or an archive. It sends no requests,
and does not disturb a broker that uses the log dir.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from kstore.pipeline.batch_reader import BatchReader, tasks_of
from kstore.pipeline.errors import PipelineError, message_first
from kstore.pipeline.options import PATH, check_names, client_options, flag, number, text
from kstore.pipeline.ranges import OffsetRange
from kstore.pipeline.read_options import ReadOptions, Selection, offset_limit, selection
from kstore.pipeline.schema import arrow_schema
from kstore.pipeline.segments.files import SegmentRange, read_segments
from kstore.pipeline.worker_process import spare_imports

__all__ = ["SegmentReader"]

_SELECTIONS = ("assign", "subscribe", "subscribePattern")
_SETTINGS = {
    "isolation.level": ("read_uncommitted", "read_committed"),
    "check.crcs": ("true", "false"),
}
"""The consumer settings that have an effect here, and their values, the default first."""


@message_first
class SegmentReader(BatchReader):
    """Records of a log dir's segments, or of an archive."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        settings = _settings(options)
        self._verify = settings["check.crcs"] == "true"
        self._committed = settings["isolation.level"] == "read_committed"
        self._path = text(options, PATH) or ""
        self._prepare(schema, _read_options(options))

    def partitions(self) -> list[InputPartition]:
        """Plans byte ranges of the current files."""
        return tasks_of(self._planned())

    def _planned(self) -> list[Any]:
        if not os.path.isdir(self._path):
            raise PipelineError(
                f"option path is {self._path!r}, which is not a folder here",
                remedy="Give a log dir or an archive that has this path on the driver and all"
                " executors",
            )
        if os.path.isdir(os.path.join(self._path, "slices")):
            from kstore.pipeline.segments.archive_reader import ArchiveTopics

            archive = ArchiveTopics(self._path, self._options)
            return archive.tasks(self._ranges(archive))
        from kstore.pipeline.segments.planning import LogDirTopics

        log_dir = LogDirTopics(self._path, self._options, committed=self._committed)
        try:
            return log_dir.tasks(self._ranges(log_dir))
        finally:
            log_dir.close()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """One task's records as Arrow batches; in an executor."""
        wanted = partition.value
        assert isinstance(wanted, OffsetRange)
        if not wanted.size:
            return
        if isinstance(wanted, SegmentRange):
            from kstore.pipeline.arrow import arrow_decoding

            found = read_segments(
                wanted,
                arrow_decoding(self._columns),
                verify=self._verify,
                fail_on_data_loss=self._options.fail_on_data_loss,
            )
        else:
            from kstore.pipeline.segments.archive_reader import read_archive

            found = read_archive(wanted, arrow_schema(*self._columns))
        spare_imports()
        for batch in found:
            yield self._conditions.filtered(batch)


def _read_options(options: Mapping[str, str]) -> ReadOptions:
    """The options of a read of files; without a selection it reads all topics."""
    check_names(options)
    chosen = any(text(options, name) is not None for name in _SELECTIONS)
    strategy = (text(options, "startingOffsetsByTimestampStrategy") or "error").lower()
    return ReadOptions(
        selection=selection(options) if chosen else Selection(pattern=".*"),
        starting=offset_limit(options, "starting", "earliest"),
        ending=offset_limit(options, "ending", "latest"),
        client={},
        latest_without_match=strategy == "latest",
        fail_on_data_loss=flag(options, "failOnDataLoss", default=True),
        min_partitions=number(options, "minPartitions"),
        max_records_per_partition=number(options, "maxRecordsPerPartition"),
        include_headers=flag(options, "includeHeaders"),
    )


def _settings(options: Mapping[str, str]) -> dict[str, str]:
    """isolation.level and check.crcs; other settings of clients have no meaning here."""
    found = {name: values[0] for name, values in _SETTINGS.items()}
    for name, value in client_options(options).items():
        if name not in _SETTINGS:
            raise PipelineError(
                f"options path and kafka.{name} contradict each other: files are read without"
                " a broker",
                remedy="Remove one of the two",
            )
        if value not in _SETTINGS[name]:
            raise PipelineError(
                f"option kafka.{name} is {value!r}", remedy=f"Give {' or '.join(_SETTINGS[name])}"
            )
        found[name] = value
    return found
