"""``kstore pipeline table``: topics as tables of a lakehouse."""

from __future__ import annotations

import random
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kstore.cli.arguments import one_of
from kstore.cli.options import Json, ProfileName, Properties, Servers
from kstore.cli.pipeline.options import Follow, OnLoss, reader
from kstore.cli.pipeline.run import Confs, Master, Running, SparkOutput, Tasks, job, spark_command
from kstore.clients.core.backoff import pause_ms

if TYPE_CHECKING:
    from kstore.pipeline.jobs.tables.keep import Kept, TableOptions
    from kstore.pipeline.jobs.tables.typed import ColumnOptions

__all__ = ["EXAMPLE", "table"]

EXAMPLE = (
    "Example: kstore pipeline table orders --to iceberg:lake/shop -b broker:9092 "
    "--conf spark.sql.catalog.lake.type=rest --conf spark.sql.catalog.lake.uri=http://host:8181"
)

FIRST_PAUSE_MS, MAX_PAUSE_MS = 1_000, 60_000

To = Annotated[
    str,
    typer.Option(
        metavar="iceberg:CATALOG/NAMESPACE",
        help="One of Spark's catalogs (--conf spark.sql.catalog.CATALOG.type=...), and a "
        "namespace, which is created if it does not exist.",
    ),
]
Rows = Annotated[
    str,
    typer.Option(
        help="all: a row for each record; latest: the latest value of each key; auto: latest "
        "for a new table of a topic with cleanup.policy=compact, else all."
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns", metavar="avro|json|protobuf",
        help="Read values by schemas of this kind: the column value gets their fields. By default "
        "values are bytes.",
    ),
]  # fmt: skip
SchemaRegistry = Annotated[
    str | None,
    typer.Option(
        "--schema-registry", metavar="URL",
        help="With --columns: the schema registry. Values have the ids of their schemas.",
    ),
]  # fmt: skip
Subject = Annotated[
    str | None, typer.Option(help="The registry's subject; by default TOPIC-value.")
]
SchemaFile = Annotated[
    Path | None,
    typer.Option(
        "--schema", metavar="FILE", exists=True, dir_okay=False,
        help="With --columns, instead of a registry: the schema of values without ids (for "
        "protobuf: a descriptor set, see --message).",
    ),
]  # fmt: skip
Message = Annotated[
    str | None, typer.Option(help="The full name of the Protobuf message in --schema.")
]
BadRecords = Annotated[
    str,
    typer.Option(
        help="fail, or keep: values that do not match their schema are kept as bytes in the column "
        "undecoded."
    ),
]
Resync = Annotated[
    bool,
    typer.Option(
        "--resync", help="Read the topic from its beginning, and replace the table's rows."
    ),
]


@spark_command
def table(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    to: To,
    name: Annotated[
        str | None,
        typer.Option("--table", help="Default: the topic's name, with _ for dots and dashes."),
    ] = None,
    rows: Rows = "auto",
    null_keys: Annotated[
        str, typer.Option(help="fail or skip, for records without a key, with --rows latest.")
    ] = "fail",
    on_loss: OnLoss = "fail",
    follow: Follow = False,
    every: Annotated[
        float, typer.Option(min=0.0, help="With --follow: seconds between commits.")
    ] = 60.0,
    max_offsets: Annotated[
        int, typer.Option(min=0, help="The most offsets in one commit; 0: all available records.")
    ] = 0,
    resync: Resync = False,
    columns: Columns = None,
    schema_registry: SchemaRegistry = None,
    subject: Subject = None,
    schema: SchemaFile = None,
    message: Message = None,
    bad_records: BadRecords = "fail",
    bootstrap: Servers = None,
    properties: Properties = None,
    profile: ProfileName = None,
    master: Master = None,
    conf: Confs = None,
    spark_output: SparkOutput = False,
    tasks: Tasks = 0,
    json: Json = False,
) -> None:
    """Keep a topic as an Iceberg table: each committed record is one row, partitioned by day.

    A commit holds rows and the progress, so you can kill it at any time and start it again: no
    record is lost or duplicated. With --follow, it reports errors of brokers, the catalog or
    Spark's tasks after the first round, and tries again.
    """
    from kstore.pipeline.jobs.tables.iceberg import PACKAGE
    from kstore.pipeline.jobs.tables.keep import TableOptions, table_name, target

    try:
        catalog, namespace = target(to)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    options = TableOptions(
        reader(bootstrap, properties, profile),
        topic,
        catalog,
        namespace,
        name or table_name(topic),
        on_loss=one_of("--on-loss", on_loss, "fail", "skip"),
        max_offsets=max_offsets,
        rows=one_of("--rows", rows, "auto", "all", "latest"),
        null_keys=one_of("--null-keys", null_keys, "fail", "skip"),
        resync=resync,
        tasks=tasks,
        columns=_columns(columns, schema_registry, subject, schema, message, bad_records),
    )
    with job(
        "table", master, _with_iceberg(conf, PACKAGE), json, options.settings, loud=spark_output
    ) as running:
        _rounds(running, options, every if follow else None)


def _columns(
    kind: str | None, registry: str | None, subject: str | None, schema: Path | None,
    message: str | None, bad_records: str,
) -> ColumnOptions | None:  # fmt: skip
    """How values are decoded, if they are not kept as bytes."""
    from kstore.pipeline.columns.decoding import FORMATS
    from kstore.pipeline.jobs.tables.typed import ColumnOptions

    keep_bad = one_of("--bad-records", bad_records, "fail", "keep") == "keep"
    if kind is None:
        if registry or subject or schema or message or keep_bad:
            raise typer.BadParameter(
                "choose how to decode values: --columns avro, json or protobuf"
            )
        return None
    one_of("--columns", kind, *FORMATS)
    if (registry is None) == (schema is None):
        raise typer.BadParameter("--columns needs either --schema-registry or --schema")
    if (message is not None) != (kind == "protobuf" and schema is not None):
        raise typer.BadParameter("--message goes with --columns protobuf and --schema")
    file = None if schema is None else str(schema)
    return ColumnOptions(kind, registry, subject, file, message, keep_bad)


def _with_iceberg(confs: list[str] | None, package: str) -> list[str]:
    """The settings, with Iceberg's library added."""
    given = list(confs or [])
    jars = [conf for conf in given if conf.startswith(("spark.jars=", "spark.jars.packages="))]
    if any("iceberg" in conf for conf in jars):
        return given
    key = "spark.jars.packages="
    others = [conf for conf in jars if conf.startswith(key)]
    given = [conf for conf in given if conf not in others]
    return [*given, key + ",".join([package, *(conf.removeprefix(key) for conf in others)])]


def _rounds(running: Running, options: TableOptions, every_s: float | None) -> None:
    """Run rounds until no records are left, or forever."""
    from dataclasses import replace

    from kstore.pipeline.jobs.session import passing_trouble
    from kstore.pipeline.jobs.tables.iceberg import Catalog
    from kstore.pipeline.jobs.tables.keep import keep_table

    catalog = Catalog(running.spark, options.catalog)
    rounds = failures = 0
    while True:
        began = time.monotonic()
        try:
            kept = keep_table(running.spark, options, running.print, catalog)
        except Exception as error:
            # An error of the first round may be one that will not go away.
            trouble = None if not rounds else passing_trouble(error, running.spark)
            if every_s is None or trouble is None:
                raise
            failures += 1
            pause_s = pause_ms(failures, FIRST_PAUSE_MS, MAX_PAUSE_MS, random.random()) / 1000
            running.print(f"{trouble.rstrip('.')}; trying again in {pause_s:.0f} s")
            time.sleep(pause_s)
            continue
        rounds += 1
        failures = 0
        options = replace(options, resync=False)
        more = bool(kept.behind and kept.offsets)
        if kept.offsets or kept.lost or every_s is None:
            _tell(running, kept)
        if more:
            continue
        if every_s is None:
            return
        time.sleep(max(every_s - (time.monotonic() - began), 0.1))


def _tell(running: Running, kept: Kept) -> None:
    lost = f", {kept.lost} offsets were lost" if kept.lost else ""
    running.done(
        asdict(kept),
        f"{kept.table}: {kept.records} records, {kept.bytes / 1e6:.1f} MB in {kept.files} files"
        f"{lost}; snapshot {kept.snapshot}",
    )
