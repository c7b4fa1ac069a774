"""``kstore pipeline archive`` and ``restore``: topics to Parquet, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kstore.cli.arguments import one_of
from kstore.cli.failure import guarded
from kstore.cli.options import Json, ProfileName, Properties, Servers
from kstore.cli.pipeline.engine import Engine, is_local, need_spark
from kstore.cli.pipeline.options import (
    ArchiveFolder,
    OnLoss,
    is_committed,
    names_matching,
    reader,
)
from kstore.cli.pipeline.run import Confs, Master, Running, SparkOutput, Tasks, job
from kstore.cli.records.copy_options import Isolation, NoConfigs, Regex, Replicas, Topics

if TYPE_CHECKING:
    from kstore.pipeline.jobs.archive import ArchiveOptions, Plan
    from kstore.pipeline.jobs.restore import RestoreOptions

__all__ = ["ARCHIVE_EXAMPLE", "RESTORE_EXAMPLE", "archive", "restore"]

ARCHIVE_EXAMPLE = (
    "Example: kstore pipeline archive orders payments --archive /data/archive -b host:9092"
)
RESTORE_EXAMPLE = (
    "Example: kstore pipeline restore orders --archive /data/archive -b new:9092 "
    "--rename orders=orders-2024"
)


@guarded
def archive(
    topics: Topics,
    path: ArchiveFolder,
    regex: Regex = False,
    by: Annotated[str, typer.Option(help="Make one folder per day or per hour.")] = "day",
    isolation_level: Isolation = "read_committed",
    on_loss: OnLoss = "fail",
    engine: Engine = "auto",
    bootstrap: Servers = None,
    properties: Properties = None,
    profile: ProfileName = None,
    master: Master = None,
    conf: Confs = None,
    spark_output: SparkOutput = False,
    tasks: Tasks = 0,
    json: Json = False,
) -> None:
    """Archive topics as Parquet by topic and time, with offsets and epochs. The next run continues.

    You can kill it at any time. Files of an unfinished run are ignored and can be deleted.
    """
    from kstore.pipeline.jobs.session import require_arrow

    require_arrow()
    from kstore.pipeline.jobs.archive import ArchiveOptions, plan

    options = ArchiveOptions(
        reader(bootstrap, properties, profile),
        path,
        names_matching(topics, regex),
        hourly=one_of("--by", by, "day", "hour") == "hour",
        read_committed=is_committed(isolation_level),
        on_loss=one_of("--on-loss", on_loss, "fail", "skip"),
        tasks=tasks,
    )
    alone = Running(None, json)
    planned: Plan | None = None

    def offsets() -> int:
        nonlocal planned
        planned = plan(None, options, alone.print)
        return planned.offsets

    if is_local(engine, master, conf, [path], offsets):
        _archive(alone, options, planned)
        return
    need_spark([path])
    with job("archive", master, conf, json, options.settings, loud=spark_output) as running:
        _archive(running, options, planned)


def _archive(running: Running, options: ArchiveOptions, planned: Plan | None) -> None:
    """Run the job and print its results."""
    from dataclasses import asdict

    from kstore.pipeline.jobs.archive import archive as work

    slices = work(running.spark_or_none, options, running.print, planned)
    for each in slices:
        running.row(asdict(each) | {"configs": None})
    records = sum(each.records for each in slices)
    done = {"partitions": len(slices), "records": records, "archive": options.path}
    message = f"{records} records of {len(slices)} partitions archived in {options.path}"
    running.done(done, message if slices else f"nothing is new: {options.path} has all records")


@guarded
def restore(
    topics: Topics,
    path: ArchiveFolder,
    regex: Regex = False,
    rename: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OLD=NEW", help="Restore a topic under another name; may be repeated."
        ),
    ] = None,
    compression: Annotated[
        str, typer.Option(help="The compression of batches: none, gzip, snappy, lz4, zstd.")
    ] = "none",
    replication_factor: Replicas = -1,
    no_configs: NoConfigs = False,
    engine: Engine = "auto",
    bootstrap: Servers = None,
    properties: Properties = None,
    profile: ProfileName = None,
    master: Master = None,
    conf: Confs = None,
    spark_output: SparkOutput = False,
    json: Json = False,
) -> None:
    """Restore topics of an archive to a kstore cluster, each record at its offset.

    It keeps no state: you can kill it at any time and start it again, and no record is written
    twice. Topics get their configs back, so retention soon deletes records that are too old.
    """
    from kstore.cli.arguments import key_values
    from kstore.pipeline.jobs.session import require_arrow
    from kstore.record import compression_for

    require_arrow()
    from kstore.pipeline.jobs.restore import RestoreOptions, offsets_to_restore

    try:
        codec = int(compression_for(compression).id)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    options = RestoreOptions(
        path,
        reader(bootstrap, properties, profile),
        names_matching(topics, regex),
        renamed=key_values(rename, "orders=orders-2024"),
        replication_factor=replication_factor,
        copy_configs=not no_configs,
        compression=codec,
    )
    if is_local(engine, master, conf, [path], lambda: offsets_to_restore(options)):
        _restore(Running(None, json), options)
        return
    need_spark([path])
    with job("restore", master, conf, json, options.settings, loud=spark_output) as running:
        _restore(running, options)


def _restore(running: Running, options: RestoreOptions) -> None:
    """Run the job and print its results."""
    from dataclasses import asdict

    from kstore.pipeline.jobs.restore import restore as work

    found = work(running.spark_or_none, options, running.print)
    for each in found:
        running.row(asdict(each))
    written = sum(each.written for each in found)
    there = sum(each.already_there for each in found)
    done = {"partitions": len(found), "written": written, "already_there": there}
    running.done(
        done,
        f"{written} records of {len(found)} partitions restored, {there} were there already",
    )
