"""The Spark data source "kstore": `spark.read`, `readStream`, `write` and `writeStream` with the
options and the schema of Spark's own Kafka connector.

It only selects the implementation; each reader and writer is imported when Spark asks for it.
Importing this module makes a Spark that is started later use this Python, and Unix sockets.
"""

from __future__ import annotations

import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from kstore.pipeline.errors import PipelineError, message_first
from kstore.pipeline.options import PATH, check_names, flag
from kstore.pipeline.schema import source_schema
from kstore.pipeline.this_python import use_this_python, use_unix_sockets

__all__ = ["KstoreDataSource"]

OLDEST = (4, 2)
"""The first PySpark version whose Python data sources support limits of micro-batches."""

use_this_python()
use_unix_sockets()


@message_first
class KstoreDataSource(DataSource):
    """Topics of Kafka or kstore brokers, or segment files of a log dir or an archive (``path``)."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "kstore"

    def schema(self) -> StructType:
        """The columns of Spark's Kafka connector; headers if includeHeaders requests them."""
        _check_version(pyspark.__version__)
        check_names(self.options)
        return source_schema(include_headers=flag(self.options, "includeHeaders"))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Read a batch: segments if ``path`` is set, otherwise through brokers."""
        if PATH in self.options:
            from kstore.pipeline.segments.reader import SegmentReader

            return SegmentReader(schema, self.options)
        from kstore.pipeline.batch_reader import BatchReader

        return BatchReader(schema, self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Read a stream through brokers."""
        if PATH in self.options:
            raise PipelineError(
                "option path is for batch reads; a stream is read through brokers",
                remedy="Use kafka.bootstrap.servers instead, or use spark.read",
            )
        from kstore.pipeline.stream_reader import StreamReader

        return StreamReader(schema, self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Write a batch."""
        from kstore.pipeline.sink.sink import BatchWriter

        return BatchWriter(schema, self.options, overwrite=overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Write each micro-batch of a stream."""
        from kstore.pipeline.sink.sink import StreamWriter

        return StreamWriter(schema, self.options, overwrite=overwrite)


def _check_version(version: str) -> None:
    """Raise PipelineError for a PySpark that is too old: it finds this source nevertheless."""
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        raise PipelineError(
            f"the source kstore needs PySpark {'.'.join(map(str, OLDEST))} or newer, this is"
            f" {version}",
            remedy='Install "kstore[spark]" where driver and executors run',
        )
