"""``kstore pipeline``: the jobs of kstore.pipeline.jobs as commands. All but load need Spark, and
import it when they run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kstore.cli.arguments import one_of
from kstore.cli.failure import FAILED, guarded
from kstore.cli.options import Bootstrap, Json, ProfileName, Properties, Servers
from kstore.cli.pipeline.archives import ARCHIVE_EXAMPLE, RESTORE_EXAMPLE, archive, restore
from kstore.cli.pipeline.engine import Engine, is_local, need_spark
from kstore.cli.pipeline.options import OnLoss, is_committed, names_matching, reader
from kstore.cli.pipeline.run import (
    Confs,
    Master,
    Running,
    SparkOutput,
    Tasks,
    job,
    spark_command,
)
from kstore.cli.pipeline.table import EXAMPLE, table
from kstore.cli.records.copy_options import (
    FromProfile,
    Groups,
    Isolation,
    NoConfigs,
    NoGroups,
    Rate,
    Regex,
    Replicas,
    SourceProperty,
    TargetProperty,
    Topics,
    ToProfile,
)

if TYPE_CHECKING:
    from kstore.pipeline.jobs.verification.sides import ArchiveSide, ClusterSide

__all__ = ["app", "load"]

app = typer.Typer(
    help="Jobs that copy, archive and check files and topics: small ones in this process "
    "(--engine), others with Spark on this machine, or on the cluster that --master or "
    "spark-submit names. "
    "`kstore replicate` and `kstore verify-order` never need Spark.",
    no_args_is_help=True,
)

ReportFolder = Annotated[
    str | None,
    typer.Option(
        "--report",
        metavar="FOLDER",
        help="Write Parquet tables and report.html to this folder.",
    ),
]
FromServers = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="HOST:PORT,...",
        help="Brokers of the source cluster.",
    ),
]
ToServers = Annotated[
    str | None, typer.Option("--to", metavar="HOST:PORT,...", help="Brokers of the target cluster.")
]
ArchivePath = Annotated[
    str | None, typer.Option("--archive", metavar="FOLDER", help="The path or URL of an archive.")
]


@app.command(epilog="Example: kstore pipeline load --file server.log")
def load(
    file: Annotated[
        Path | None, typer.Option(help="A text file; by default the Debian package list.")
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            help="The topic; by default named after the file.",
        ),
    ] = None,
    bootstrap: Bootstrap = "localhost:9092",
    json: Json = False,
) -> None:
    """Load a file through confluent-kafka, read it back, and compare every record."""
    from kstore.pipeline.jobs.load import main

    arguments = ["--bootstrap-server", bootstrap]
    arguments += ["--file", str(file)] if file else []
    arguments += ["--topic", topic] if topic else []
    arguments += ["--json"] if json else []
    raise typer.Exit(main(arguments))


@app.command(
    epilog="Example: spark-submit --master yarn $(kstore pipeline script) archive orders "
    "-b broker:9092 --archive s3a://bucket/archive"
)
@guarded
def script() -> None:
    """Print the path of the script for spark-submit; it takes the same commands and options."""
    print(Path(__file__).parents[1] / "submit" / "kstore_pipeline.py")


app.command(epilog=ARCHIVE_EXAMPLE)(archive)
app.command(epilog=RESTORE_EXAMPLE)(restore)


@app.command(
    epilog="Example: kstore pipeline replicate --regex 'orders\\..*' --from old:9092 --to new:9092"
)
@spark_command
def replicate(
    topics: Topics,
    source: FromServers = None,
    target: ToServers = None,
    regex: Regex = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Start another round when one is done, until Ctrl-C.")
    ] = False,
    groups: Groups = ".*",
    no_groups: NoGroups = False,
    isolation_level: Isolation = "read_committed",
    on_loss: OnLoss = "fail",
    rate_limit: Rate = None,
    replication_factor: Replicas = -1,
    no_configs: NoConfigs = False,
    source_property: SourceProperty = None,
    target_property: TargetProperty = None,
    from_profile: FromProfile = None,
    to_profile: ToProfile = None,
    master: Master = None,
    conf: Confs = None,
    spark_output: SparkOutput = False,
    tasks: Tasks = 0,
    json: Json = False,
) -> None:
    """Copy many topics from any Kafka to kstore with equal offsets, spread over Spark's executors.

    A round copies the records that exist when it begins. It keeps no state: you can kill it and
    start it again. `kstore replicate` does the same in one process without Spark, and follows the
    source closely.
    """
    from kstore.cli.pipeline.run import rounds
    from kstore.cli.records.replicate import parse_rate
    from kstore.clients.replicator import ReplicationOptions
    from kstore.pipeline.jobs.replicate import ReplicateOptions

    if source is None and from_profile is None:
        raise typer.BadParameter("specify the cluster to copy from: --from or --from-profile")
    is_committed(isolation_level)
    copying = ReplicationOptions(
        topics=names_matching(topics, regex),
        groups=None if no_groups else names_matching([groups], True),
        isolation_level=isolation_level,
        on_loss=one_of("--on-loss", on_loss, "fail", "skip"),
        rate_limit=parse_rate(rate_limit),
        replication_factor=replication_factor,
        copy_configs=not no_configs,
    )
    options = ReplicateOptions(
        reader(source, source_property, from_profile),
        reader(target, target_property, to_profile),
        copying,
        tasks,
    )
    with job(
        "replicate", master, conf, json, options.source, options.target, loud=spark_output
    ) as running:
        problems = rounds(running, options, follow=follow)
    if problems:
        raise SystemExit(FAILED)


def _sides(
    source: tuple[str | None, list[str] | None, str | None],
    target: tuple[str | None, list[str] | None, str | None],
    archive: str | None,
    committed: bool,
    tasks: int,
) -> tuple[list[ClusterSide | ArchiveSide], list[str]]:
    """The two sides to compare, the left one first, and their names."""
    from kstore.pipeline.jobs.verification.sides import ArchiveSide, ClusterSide

    sides: list[ClusterSide | ArchiveSide] = []
    names = []
    for servers, properties, profile in (source, target):
        if servers or profile:
            settings = reader(servers, properties, profile)
            sides.append(ClusterSide(settings, committed, tasks))
            names.append(f"cluster {settings.get('bootstrap.servers', profile)}")
    if archive:
        sides.append(ArchiveSide(archive))
        names.append(f"archive {archive}")
    if not sides or len(sides) > 2:
        raise typer.BadParameter(
            "use two of --from, --to and --archive to compare them, or --archive alone to check it"
        )
    return sides, names


def _clusters(sides: Sequence[ClusterSide | ArchiveSide]) -> list[Mapping[str, Any]]:
    from kstore.pipeline.jobs.verification.sides import ClusterSide

    return [side.settings for side in sides if isinstance(side, ClusterSide)]


@app.command(
    epilog="Example: kstore pipeline verify orders --from old:9092 --to new:9092 --report ./found"
)
@guarded
def verify(
    topics: Topics,
    source: FromServers = None,
    target: ToServers = None,
    archive: ArchivePath = None,
    regex: Regex = False,
    allow_behind: Annotated[
        bool, typer.Option("--allow-behind", help="A copy that ends earlier counts as equal.")
    ] = False,
    match: Annotated[
        str,
        typer.Option(
            help="offsets, or keys: each key's records in their order, whatever their offsets."
        ),
    ] = "offsets",
    number: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="Also check each key's own numbers: value, key, json:FIELD or header:NAME.",
        ),
    ] = None,
    key: Annotated[str, typer.Option(metavar="PLACE", help="Where the key is.")] = "key",
    report: ReportFolder = None,
    engine: Engine = "auto",
    isolation_level: Isolation = "read_committed",
    source_property: SourceProperty = None,
    target_property: TargetProperty = None,
    from_profile: FromProfile = None,
    to_profile: ToProfile = None,
    master: Master = None,
    conf: Confs = None,
    spark_output: SparkOutput = False,
    tasks: Tasks = 0,
    json: Json = False,
) -> None:
    """Check that two clusters, or a cluster and an archive, have the same records.

    This finds gaps, duplicates, changed records, wrong checksums and epochs, and wrong order of a
    key. Exit code 0: no differences; 1: differences. `kstore verify-order` checks a topic's order.
    """
    from kstore.pipeline.jobs.session import require_arrow

    require_arrow()
    from kstore.cli.pipeline.verify import run_verify

    one_of("--match", match, "offsets", "keys")
    sides, names = _sides(
        (source, source_property, from_profile),
        (target, target_property, to_profile),
        archive,
        is_committed(isolation_level),
        tasks,
    )
    if match == "keys" and len(sides) < 2:
        raise typer.BadParameter("--match keys compares two of --from, --to and --archive")
    pattern = names_matching(topics, regex)
    by_key = match == "keys" or number is not None
    if _few(engine, sides, pattern, master, conf, report, by_key=by_key):
        use: AbstractContextManager[Running] = nullcontext(Running(None, json))
    else:
        need_spark(None if by_key else _folders(sides, report))
        use = job("verify", master, conf, json, *_clusters(sides), loud=spark_output)
    with use as running:
        good = run_verify(
            running, pattern, sides, names, match=match, number=number, key=key,
            allow_behind=allow_behind, report=report,
        )  # fmt: skip
    if not good:
        raise SystemExit(FAILED)


@app.command(
    epilog="Example: kstore pipeline stats --regex '.*' -b localhost:9092 --report ./stats"
)
@guarded
def stats(
    topics: Topics,
    archive: ArchivePath = None,
    regex: Regex = False,
    top: Annotated[int, typer.Option(min=0, help="The number of keys of each topic to show.")] = 20,
    report: ReportFolder = None,
    engine: Engine = "auto",
    isolation_level: Isolation = "read_committed",
    bootstrap: Servers = None,
    properties: Properties = None,
    profile: ProfileName = None,
    master: Master = None,
    conf: Confs = None,
    spark_output: SparkOutput = False,
    tasks: Tasks = 0,
    json: Json = False,
) -> None:
    """Show keys, sizes, times and skew of topics, and the lag of groups."""
    from kstore.pipeline.jobs.session import require_arrow

    require_arrow()
    from kstore.cli.pipeline.verify import run_stats
    from kstore.pipeline.jobs.verification.sides import ArchiveSide, ClusterSide

    pattern = names_matching(topics, regex)
    side: ClusterSide | ArchiveSide
    if archive:
        side, name = ArchiveSide(archive), f"the archive {archive}"
    else:
        settings = reader(bootstrap, properties, profile)
        side = ClusterSide(settings, is_committed(isolation_level), tasks)
        name = f"the cluster {settings.get('bootstrap.servers', 'localhost:9092')}"
    if _few(engine, [side], pattern, master, conf, report):
        run_stats(Running(None, json), pattern, side, name, top=top, report=report)
        return
    need_spark(_folders([side], report))
    with job("stats", master, conf, json, *_clusters([side]), loud=spark_output) as running:
        run_stats(running, pattern, side, name, top=top, report=report)


def _few(
    engine: str,
    sides: Sequence[ClusterSide | ArchiveSide],
    topics: re.Pattern[str],
    master: str | None,
    conf: list[str] | None,
    report: str | None,
    *,
    by_key: bool = False,
) -> bool:
    """Whether this process runs the job without Spark. Raises typer.BadParameter if it can't."""
    from kstore.pipeline.jobs.archive import FEW

    if by_key and engine == "local":
        raise typer.BadParameter("--match keys and --number need Spark, not --engine local")
    if by_key:
        engine = "spark" if engine == "auto" else engine

    def offsets() -> int:
        found = 0
        for side in sides:
            extents = side.covers(None, topics)
            found = max(found, sum(extent.end - extent.start for extent in extents.values()))
            if found > FEW:
                break
        return found

    return is_local(engine, master, conf, _folders(sides, report), offsets)


def _folders(sides: Sequence[ClusterSide | ArchiveSide], report: str | None) -> list[str]:
    """The paths that the job reads or writes."""
    from kstore.pipeline.jobs.verification.sides import ArchiveSide

    folders = [side.path for side in sides if isinstance(side, ArchiveSide)]
    return folders if report is None else [*folders, report]


app.command(epilog=EXAMPLE)(table)
