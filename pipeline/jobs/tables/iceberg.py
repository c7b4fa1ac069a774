"""Iceberg's own Java library, through the JVM of Spark's driver: catalogs from Spark's settings,
tables, and commits that succeed only on the snapshot that they were planned on.

Spark's part of Iceberg's runtime (SparkCatalog) is not used: it supports only one version of Spark,
and repeats an append on any later snapshot if another commit was faster.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kstore.pipeline.jobs.failure import JobError
from kstore.pipeline.jobs.tables.progress import COMMIT, PROGRESS, RESYNC
from kstore.pipeline.jobs.tables.schema import schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PACKAGE", "Catalog", "ConflictError", "DataFile", "Head", "Live", "Prepared", "Table"]

PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
"""From Maven. Only its core is used, which works with every Spark of Scala 2.13."""
BRANCH, TAG = "main", "kstore_progress"
NAME_MAPPING = "schema.name-mapping.default"
OWNER = "kstore.topic"
KEY_COLUMNS = ("key", "partition", "timestamp")
"""What `live` files are read for."""
LOOKS = 5
"""How often the catalog is asked whether a commit with a lost response was made."""
DEFINITELY_NOT = "CommitFailedException"
_FASTER = "another program has committed in the meantime"


class ConflictError(Exception):
    """This commit was not made, and why: usually another program was faster."""


@dataclass(frozen=True)
class DataFile:
    """A Parquet file of the table: its path, its size, and Hive's name of its partition."""

    path: str
    size: int
    partition: str = ""


@dataclass(frozen=True)
class Prepared:
    """A file with Iceberg's metadata and its number of rows."""

    made: Any
    records: int
    size: int


@dataclass(frozen=True)
class Live:
    """A data file of a snapshot, and the files of position deletes that may refer to its rows."""

    path: str
    deletes: tuple[str, ...]


@dataclass(frozen=True)
class Head:
    """The table's current snapshot, and kstore's newest notes among its ancestors."""

    snapshot: int | None
    progress: str | None


PASSING = frozenset({
    "IOException", "UncheckedIOException", "RuntimeIOException", "ServiceFailureException",
    "ServiceUnavailableException", "CommitStateUnknownException", "SQLTransientException",
    "SQLNonTransientConnectionException", "TTransportException",
})  # fmt: skip
"""Exceptions of Java, Iceberg and databases that may be temporary."""


@contextmanager
def java(what: str) -> Iterator[None]:
    """Convert a Java exception to JobError."""
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        raise JobError(f"{what}: {_message_of(error)}", passes=_passes(error)) from error


def _passes(error: Any) -> bool:
    """Whether a service or a network was unavailable: one of these classes is among the causes."""
    thrown = error.java_exception
    while thrown is not None:
        kind = thrown.getClass()
        while kind is not None:
            if str(kind.getSimpleName()) in PASSING:
                return True
            kind = kind.getSuperclass()
        thrown = thrown.getCause()
    return False


def _message_of(error: Any) -> str:
    thrown = error.java_exception
    name = str(thrown.getClass().getSimpleName())
    cause = thrown.getCause()
    more = f" ({cause.getMessage()})" if cause is not None and cause.getMessage() else ""
    return f"{name}: {thrown.getMessage()}{more}"


class Catalog:
    """A catalog by its name in Spark's settings: spark.sql.catalog.NAME.type, .uri, .warehouse, and
    the other settings of Iceberg. Raises JobError if it does not exist.
    """

    def __init__(self, spark: SparkSession, name: str) -> None:
        self.spark = spark
        self.name = name
        self._jvm: Any = spark._jvm
        if self._jvm is None:
            raise JobError("tables need a Spark with its own JVM, not Spark Connect")
        self._hadoop = spark.sparkContext._jsc.hadoopConfiguration()
        options = self._options()
        with java(f"the catalog {name} can't be opened"):
            self._catalog = self.library("CatalogUtil").buildIcebergCatalog(
                name, options, self._hadoop
            )

    def library(self, path: str) -> Any:
        """A class of org.apache.iceberg."""
        found = self._jvm.org.apache.iceberg
        for part in path.split("."):
            found = getattr(found, part)
        return found

    def _options(self) -> Any:
        prefix = f"spark.sql.catalog.{self.name}."
        options = self._jvm.java.util.HashMap()
        for key, value in self.spark.conf.getAll.items():
            if key.startswith(prefix):
                options.put(key.removeprefix(prefix), value)
        if options.isEmpty():
            raise JobError(
                f"Spark has no catalog {self.name}: configure it with --conf "
                f"{prefix}type=rest --conf {prefix}uri=http://... (or hive, glue, jdbc, hadoop, "
                "with what it needs), or in spark-defaults.conf"
            )
        if not _is_class(self.library("CatalogUtil")):
            raise JobError(
                f"Iceberg is not on Spark's class path: add --conf spark.jars.packages={PACKAGE}, "
                "or --conf spark.jars= with the path of that jar"
            )
        return options

    def load(self, namespace: str, name: str) -> Table | None:
        """The table, or None if there is none. Raises JobError."""
        ident = self._ident(namespace, name)
        with java(f"table {namespace}.{name} can't be read"):
            if not self._catalog.tableExists(ident):
                return None
            return Table(self, self._catalog.loadTable(ident), f"{namespace}.{name}")

    def create(
        self,
        namespace: str,
        name: str,
        schema: Mapping[str, Any],
        day: str | None,
        properties: Mapping[str, str],
    ) -> Table:
        """Create a table with this schema (Iceberg's JSON), partitioned by day of a column, and its
        namespace.
        """
        ident = self._ident(namespace, name)
        with java(f"table {namespace}.{name} can't be created"):
            if not self._catalog.namespaceExists(ident.namespace()):
                self._catalog.createNamespace(ident.namespace())
            made = self.library("SchemaParser").fromJson(json.dumps(schema))
            builder = self.library("PartitionSpec").builderFor(made)
            spec = (builder.day(day) if day else builder).build()
            mapping = self.library("mapping")
            options = self._jvm.java.util.HashMap()
            # Spark writes no field ids into Parquet: readers find columns by their names.
            options.put(
                NAME_MAPPING,
                mapping.NameMappingParser.toJson(mapping.MappingUtil.create(made)),
            )
            for key, value in properties.items():
                options.put(key, value)
            table = self._catalog.createTable(ident, made, spec, options)
        return Table(self, table, f"{namespace}.{name}")

    def _ident(self, namespace: str, name: str) -> Any:
        levels = namespace.split(".")
        gateway: Any = self.spark.sparkContext._gateway
        array = gateway.new_array(self._jvm.java.lang.String, len(levels))
        for at, level in enumerate(levels):
            array[at] = level
        of = self.library("catalog.Namespace").of(array)
        return self.library("catalog.TableIdentifier").of(of, name)

    def files(self, folder: str) -> list[DataFile]:
        """The Parquet files below a folder that Spark has written, with paths that begin with
        it.
        """
        with java(f"{folder} can't be listed"):
            at = self._jvm.org.apache.hadoop.fs.Path(folder)
            system = at.getFileSystem(self._hadoop)
            if not system.exists(at):
                return []
            whole = system.getFileStatus(at).getPath().toString()
            found = []
            listed = system.listFiles(at, True)
            while listed.hasNext():
                file = listed.next()
                path = file.getPath().toString()
                if path.endswith(".parquet"):
                    below = path.removeprefix(whole)
                    partition = below.strip("/").rsplit("/", 1)[0] if "/" in below[1:] else ""
                    found.append(DataFile(folder + below, file.getLen(), partition))
        return sorted(found, key=lambda file: file.path)

    def qualified(self, path: str) -> str:
        """The path as in Spark's _metadata.file_path."""
        with java(f"{path} can't be found"):
            at = self._jvm.org.apache.hadoop.fs.Path(path)
            return str(at.getFileSystem(self._hadoop).makeQualified(at).toUri().toString())

    def delete(self, folder: str) -> None:
        """Delete a folder that no snapshot refers to."""
        with java(f"{folder} can't be deleted"):
            at = self._jvm.org.apache.hadoop.fs.Path(folder)
            at.getFileSystem(self._hadoop).delete(at, True)


def _is_class(found: Any) -> bool:
    from py4j.java_gateway import JavaClass

    return isinstance(found, JavaClass)


class Table:
    """A table, as it was last loaded or refreshed."""

    def __init__(self, catalog: Catalog, table: Any, name: str) -> None:
        self.catalog = catalog
        self._table = table
        self.name = name

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties."""
        return dict(self._table.properties())

    @property
    def data_folder(self) -> str:
        """The folder for its files."""
        location = str(self._table.location()).rstrip("/")
        return self.properties.get("write.data.path", f"{location}/data").rstrip("/")

    def column_type(self, name: str) -> Any:
        """The type of a column in Iceberg's JSON. Raises JobError."""
        with java(f"the schema of table {self.name} can't be read"):
            schema = json.loads(self.catalog.library("SchemaParser").toJson(self._table.schema()))
        for field in schema["fields"]:
            if field["name"] == name:
                return field["type"]
        raise JobError(f"table {self.name} has no column {name} any more: add it again")

    def grow(self, columns: Mapping[str, Any]) -> None:
        """Change columns to these types (Iceberg's JSON without ids), which contain the current
        ones. Raises JobError, and ConflictError if another program has changed the table meanwhile.
        """
        from py4j.protocol import Py4JJavaError

        schema = self.catalog.library("SchemaParser").fromJson(json.dumps(schema_of(columns)))
        try:
            self._table.updateSchema().unionByNameWith(schema).commit()
        except Py4JJavaError as error:
            message = _message_of(error)
            if message.startswith(DEFINITELY_NOT):
                raise ConflictError(_FASTER) from error
            raise JobError(f"the columns of table {self.name} can't grow: {message}") from error
        self.refresh()

    def refresh(self) -> None:
        """Refresh. Raises JobError."""
        with java(f"table {self.name} can't be read"):
            self._table.refresh()

    def head(self) -> Head:
        """The current snapshot, and the notes about the topic. Raises JobError."""
        with java(f"the snapshots of table {self.name} can't be read"):
            current = self._table.currentSnapshot()
            at = current
            while at is not None:
                progress = at.summary().get(PROGRESS)
                if progress is not None:
                    return Head(current.snapshotId(), str(progress))
                parent = at.parentId()
                at = None if parent is None else self._table.snapshot(parent)
            return Head(None if current is None else current.snapshotId(), None)

    # ---- commits ----

    def prepared(self, files: Sequence[DataFile]) -> list[Prepared]:
        """What a commit needs to know about each file, from its footer. Raises JobError."""
        with java(f"the files for table {self.name} can't be read"):
            return [self._prepared(file) for file in files]

    def _prepared(self, file: DataFile) -> Prepared:
        spec = self._table.specs().get(0)
        metrics = self._metrics(file)
        builder = (
            self.catalog.library("DataFiles")
            .builder(spec)
            .withPath(file.path)
            .withFormat("parquet")
            .withFileSizeInBytes(file.size)
            .withMetrics(metrics)
        )
        if not spec.isUnpartitioned():
            builder = builder.withPartitionPath(file.partition.rsplit("/", 1)[-1])
        return Prepared(builder.build(), int(metrics.recordCount()), file.size)

    def append(self, files: Sequence[Prepared], progress: str, commit: str, on: int | None) -> None:
        """Add files to the snapshot `on`; without files, only the progress is noted. See
        `_commit`.
        """
        update = self._table.newAppend()
        for file in files:
            update.appendFile(file.made)
        self._commit(update, progress, commit, on)

    def replace(
        self, files: Sequence[Prepared], progress: str, commit: str, on: int | None
    ) -> None:
        """Replace all rows by these files. See `_commit`."""
        always = self.catalog.library("expressions.Expressions").alwaysTrue()
        update = self._table.newOverwrite().overwriteByRowFilter(always)
        for file in files:
            update.addFile(file.made)
        self._commit(update, progress, commit, on)

    def merge(
        self, rows: Sequence[Prepared], deletes: Sequence[Prepared], progress: str, commit: str,
        on: int | None,
    ) -> None:  # fmt: skip
        """Add rows, and delete others by position deletes. See `_commit`."""
        update = self._table.newRowDelta()
        for file in rows:
            update.addRows(file.made)
        for file in deletes:
            update.addDeletes(file.made)
        self._commit(update, progress, commit, on)

    def live(self, snapshot: int | None) -> list[Live]:
        """The data files of a snapshot. Raises JobError, also if other programs have deleted rows
        in a form that kstore does not read, or have written files in which it can't find and delete
        rows.
        """
        if snapshot is None:
            return []
        found = []
        with java(f"the files of table {self.name} can't be read"):
            for name in KEY_COLUMNS:
                if self._table.schema().findField(name) is None:
                    raise JobError(
                        f"table {self.name} has no column {name} any more, by which rows of a key "
                        f"are found: rename it back, or use another table (--table)"
                    )
            files = self._table.newScan().useSnapshot(snapshot).planFiles()
            tasks = files.iterator()
            while tasks.hasNext():
                task = tasks.next()
                if task.file().specId() != 0 or str(task.file().format()) != "PARQUET":
                    raise JobError(
                        f"table {self.name} has files of another partitioning or format than "
                        f"kstore's, in which it can't delete rows; nothing was written. {RESYNC}"
                    )
                deletes = []
                for file in task.deletes():
                    if str(file.content()) != "POSITION_DELETES" or str(file.format()) != "PARQUET":
                        raise JobError(
                            f"table {self.name} has {file.content()} in {file.format()}, of another"
                            " program: rewrite its data files (rewrite_data_files) first"
                        )
                    deletes.append(str(file.location()))
                found.append(Live(str(task.file().location()), tuple(deletes)))
            files.close()
        return found

    def prepared_deletes(self, files: Sequence[DataFile]) -> list[Prepared]:
        """As `prepared`, of files of position deletes."""
        library = self.catalog.library
        found = []
        with java(f"the deletes for table {self.name} can't be read"):
            config = library("MetricsConfig").forPositionDelete()
            for file in files:
                read = self._table.io().newInputFile(file.path)
                metrics = library("parquet.ParquetUtil").fileMetrics(read, config)
                builder = library("FileMetadata").deleteFileBuilder(self._table.specs().get(0))
                made = (
                    builder.ofPositionDeletes()
                    .withPath(file.path)
                    .withFormat("parquet")
                    .withFileSizeInBytes(file.size)
                    .withMetrics(metrics)
                    .build()
                )
                found.append(Prepared(made, int(metrics.recordCount()), file.size))
        return found

    def _metrics(self, file: DataFile) -> Any:
        library = self.catalog.library
        mapping = library("mapping.NameMappingParser").fromJson(self.properties[NAME_MAPPING])
        read = self._table.io().newInputFile(file.path)
        config = library("MetricsConfig").forTable(self._table)
        return library("parquet.ParquetUtil").fileMetrics(read, config, mapping)

    def _commit(self, update: Any, progress: str, commit: str, on: int | None) -> None:
        """Make it the current snapshot if `on` still is; raises ConflictError if not.

        Iceberg's own commit would retry on the snapshot that is then current. Here the new metadata
        are written for `on` only, and the catalog accepts them if nothing else was committed. If
        its response is lost, the table shows whether the commit was made. A commit that arrives
        late finds another current snapshot, or makes the following one fail.
        """
        from py4j.protocol import Py4JError, Py4JJavaError

        update.set(PROGRESS, progress)
        update.set(COMMIT, commit)
        operations = self._table.operations()
        try:
            snapshot = update.apply()
            base = operations.current()
            current = base.currentSnapshot()
            if (None if current is None else current.snapshotId()) != on:
                raise ConflictError(_FASTER)
            library = self.catalog.library
            # The tag keeps the notes when snapshots expire.
            tag = library("SnapshotRef").tagBuilder(snapshot.snapshotId()).build()
            builder = library("TableMetadata").buildFrom(base)
            made = builder.setBranchSnapshot(snapshot, BRANCH).setRef(TAG, tag).build()
            self._swap(base, made)
        except Py4JError as error:
            if self._has(commit, error):
                return
            message = _message_of(error) if isinstance(error, Py4JJavaError) else str(error)
            if message.startswith(DEFINITELY_NOT):
                raise ConflictError(f"{_FASTER} ({message})") from error
            raise JobError(
                f"the commit to table {self.name} failed: {message}. The table does not have it: "
                "start the job again"
            ) from error
        self.refresh()

    def _swap(self, base: Any, made: Any) -> None:
        """The decisive step: the catalog accepts the new metadata instead of `base`."""
        self._table.operations().commit(base, made)

    def _has(self, commit: str, error: Exception) -> bool:
        """Whether a commit is among the ancestors of the current snapshot although it failed here.

        Raises JobError if the catalog does not answer.
        """
        for again in range(LOOKS):
            try:
                self.refresh()
            except JobError as failed:
                if again == LOOKS - 1:
                    raise JobError(
                        f"it is unknown whether the last commit to table {self.name} was made "
                        f"({error}; then: {failed}). Start the job again: it finds out, and reads "
                        "nothing twice"
                    ) from error
                time.sleep(2**again / 2)
                continue
            at = self._table.currentSnapshot()
            while at is not None:
                if at.summary().get(COMMIT) == commit:
                    return True
                parent = at.parentId()
                at = None if parent is None else self._table.snapshot(parent)
            return False
        raise AssertionError
