"""``kstore topic``: topics of a running broker or cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kstore.cli import completion
from kstore.cli.admin_command import admin_command
from kstore.cli.arguments import key_values, parse_datetime_ms, parse_ids, parse_partition
from kstore.cli.failure import fail
from kstore.cli.options import DryRun, Topic
from kstore.cli.output import Output
from kstore.errors import ErrorCode, KafkaError
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.clients import AdminClient

__all__ = ["app", "parse_configs"]

app = typer.Typer(help="Create, delete, list, describe and change topics.", no_args_is_help=True)

# The source number of a config that was set on the topic itself, in DescribeConfigs.
_SET_ON_TOPIC = 1

CHANGE_TIMEOUT_MS = 60_000
"""A change of the number of partitions can wait for a new controller (up to a session timeout), and
then for kstore.expansion.timeout.ms. A request may take half of this time.
"""

Config = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        "-c",
        metavar="KEY=VALUE",
        autocompletion=completion.topic_configs,
        help="A topic config.",
    ),
]
Assignment = Annotated[
    list[str] | None,
    typer.Option(
        "--replicas",
        metavar="IDS",
        help="The broker ids of one new partition, such as 1,2; repeat it for each partition.",
    ),
]


def parse_configs(items: Sequence[str]) -> dict[str, str | None]:
    """Read KEY=VALUE items; typer.BadParameter for one that is not."""
    return dict(key_values(items, "retention.ms=3600000"))


@admin_command(app, "create", "kstore topic create orders --partitions 4 -c cleanup.policy=compact")
def create(
    admin: AdminClient,
    out: Output,
    topic: Topic,
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions", "-p", help="The number of partitions; -1: the broker's default."
        ),
    ] = -1,
    replication_factor: Annotated[
        int,
        typer.Option(
            help="The replication factor; -1: the broker's default.",
        ),
    ] = -1,
    config: Config = None,
    replicas: Assignment = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if the topic exists.")
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Create a topic."""
    from kstore.clients.admin import NewTopic
    from kstore.errors import TopicAlreadyExistsError

    assigned = {index: parse_ids(ids) for index, ids in enumerate(replicas or [])}
    configs = parse_configs(config or [])
    new = NewTopic(topic, partitions, replication_factor, configs, assigned)
    try:
        admin.create_topics([new], validate_only=dry_run)
    except TopicAlreadyExistsError:
        if not if_not_exists:
            raise
        out.print({"exists": topic}, f"{topic} exists")
        return
    if dry_run:
        out.print({"valid": topic}, f"{topic} can be created")
        return
    out.print({"created": topic}, f"created {topic}")


@admin_command(app, "delete", "kstore topic delete orders payments")
def delete(
    admin: AdminClient,
    out: Output,
    topics: Annotated[
        list[str],
        typer.Argument(
            help="The topics' names; with --id, their ids.", autocompletion=completion.topics
        ),
    ],
    by_id: Annotated[bool, typer.Option("--id", help="The arguments are topic ids.")] = False,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Succeed if a topic does not exist.")
    ] = False,
) -> None:
    """Delete topics with all their records."""
    from uuid import UUID

    from kstore.errors import ErrorCode

    wanted: list[str | UUID] = list(topics)
    if by_id:
        try:
            wanted = [UUID(text) for text in topics]
        except ValueError:
            raise typer.BadParameter(f"{topics} are not topic ids") from None
    results = admin.delete_topics(wanted, raise_errors=False)
    if if_exists:
        missing = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
        results.errors = {k: e for k, e in results.errors.items() if e.code not in missing}
    out.report(results, lambda topic, _: ({"deleted": str(topic)}, f"deleted {topic}"))


@admin_command(app, "list", "kstore topic list --json")
def list_topics(
    admin: AdminClient,
    out: Output,
    internal: Annotated[
        bool,
        typer.Option(
            "--internal",
            help="Include internal topics, such as __consumer_offsets.",
        ),
    ] = False,
) -> None:
    """List the topics by name."""
    for topic in admin.describe_topics():
        if internal or not topic.is_internal:
            data = {"name": topic.name, "partitions": len(topic.partitions)}
            out.print(data, topic.name)


@admin_command(app, "describe", "kstore topic describe orders")
def describe(
    admin: AdminClient,
    out: Output,
    topics: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC", help="The topics to describe.", autocompletion=completion.topics
        ),
    ],
) -> None:
    """Show a topic's id, its own configs, and its partitions with leaders and offsets."""
    for topic in topics:
        _show(out, _description(admin, topic))


def _show(out: Output, found: dict[str, Any]) -> None:
    if found["configs"] is None:
        configs = "configs not shown: this needs DESCRIBE_CONFIGS on the topic"
    else:
        configs = " ".join(f"{key}={value}" for key, value in found["configs"].items())
    lines = [f"{found['name']}  id {found['id']}  {configs or 'no configs of its own'}"]
    for row in found["partitions"]:
        replicas = ",".join(map(str, row["replicas"]))
        behind = "" if set(row["isr"]) == set(row["replicas"]) else f"  isr {row['isr']}"
        for name in ("elr", "last_known_elr"):
            behind += f"  {name} {row[name]}" if row[name] else ""
        lines.append(
            f"  {row['partition']:>4}  leader {row['leader']}  replicas {replicas}{behind}  "
            f"offsets {row['log_start_offset']} to {row['end_offset']}"
            f"{'  retired' if row['retired'] else ''}"
        )
    out.print(found, "\n".join(lines))


def _description(admin: AdminClient, name: str) -> dict[str, Any]:
    (topic,) = admin.describe_topics([name])
    partitions = [TopicPartition(name, row.partition) for row in topic.partitions]
    led = [tp for tp, row in zip(partitions, topic.partitions, strict=True) if row.leader >= 0]
    starts = admin.list_offsets(dict.fromkeys(led, "earliest"), raise_errors=False)
    ends = admin.list_offsets(dict.fromkeys(led, "latest"), raise_errors=False)
    offsets = {
        tp: (starts[tp].offset, ends[tp].offset) for tp in led if tp in starts and tp in ends
    }
    return {
        "name": name,
        "id": str(topic.topic_id),
        "is_internal": topic.is_internal,
        "configs": _own_configs(admin, name),
        "partitions": [
            {
                "partition": row.partition,
                "leader": row.leader,
                "leader_epoch": row.leader_epoch,
                "replicas": row.replicas,
                "isr": row.isr,
                "elr": row.elr,
                "last_known_elr": row.last_known_elr,
                "log_start_offset": offsets.get(tp, (None, None))[0],
                "end_offset": offsets.get(tp, (None, None))[1],
                "retired": 0 <= topic.remaining <= row.partition,
            }
            for tp, row in zip(partitions, topic.partitions, strict=True)
        ],
    }


def _own_configs(admin: AdminClient, name: str) -> dict[str, str | None] | None:
    """The configs that were set on the topic; None if the user may not see configs."""
    try:
        configs = admin.describe_configs(name)
    except KafkaError as error:
        if error.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise
        return None  # the user may describe the topic: its partitions were found
    return {key: entry.value for key, entry in configs.items() if entry.source == _SET_ON_TOPIC}


@admin_command(
    app,
    "alter",
    "kstore topic alter orders --partitions 8 -c retention.ms=3600000",
    CHANGE_TIMEOUT_MS,
)
def alter(
    admin: AdminClient,
    out: Output,
    topic: Topic,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", help="The total number of partitions.")
    ] = None,
    shrink: Annotated[
        bool,
        typer.Option(
            "--shrink",
            help="Allow fewer --partitions than now: the last ones accept no more records, and are"
            " deleted when retention has emptied them. Example: kstore topic alter orders"
            " --partitions 2 --shrink",
        ),
    ] = False,
    replicas: Assignment = None,
    config: Config = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY",
            autocompletion=completion.topic_keys,
            help="Reset a config to its default.",
        ),
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Add partitions to a topic, remove some with --shrink, or change its configs."""
    from kstore.errors import InvalidPartitionsError

    changes = parse_configs(config or []) | dict.fromkeys(unset or [])
    if shrink and partitions is None:
        raise typer.BadParameter("--shrink needs the new number of partitions: use --partitions")
    if partitions is None and not changes:
        raise typer.BadParameter("nothing to change: use --partitions, --config or --unset")
    if replicas and partitions is None:
        raise typer.BadParameter("--replicas is for new partitions: use --partitions too")
    if unset:
        from kstore.cli.admin.config import check_names

        check_names(admin, "topic", topic, unset)
    if changes:
        admin.alter_configs(topic, changes, validate_only=dry_run)
    if partitions is not None:
        ids = [parse_ids(each) for each in replicas] if replicas else None
        try:
            admin.create_partitions(
                topic, partitions, replicas=ids, may_shrink=shrink, validate_only=dry_run
            )
        except InvalidPartitionsError as error:
            if shrink:
                raise
            raise SystemExit(fail(f"{error} (--shrink allows fewer partitions)")) from None
    verb = "can be" if dry_run else "was"
    data = {"topic": topic, "partitions": partitions, "configs": list(changes), "dry_run": dry_run}
    out.print(data, f"{topic} {verb} changed")


@admin_command(app, "offsets", "kstore topic offsets orders --at 2026-03-01T12:00")
def offsets(
    admin: AdminClient,
    out: Output,
    topics: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC", help="The topics to show.", autocompletion=completion.topics
        ),
    ],
    at: Annotated[
        str,
        typer.Option(
            help="earliest, latest, max-timestamp, another name of Kafka's, or a moment: ISO 8601 "
            "(UTC if it has no zone) or ms since 1970."
        ),
    ] = "latest",
    isolation: Annotated[
        str,
        typer.Option(
            help="read_uncommitted or read_committed", autocompletion=completion.isolation_levels
        ),
    ] = "read_uncommitted",
) -> None:
    """Show an offset of each partition: the end, the start, or the one at a time."""
    from kstore.clients.admin import OFFSET_SPECS

    if isolation not in {"read_uncommitted", "read_committed"}:
        raise typer.BadParameter("--isolation must be read_uncommitted or read_committed")
    spec: str | int = at if at in OFFSET_SPECS else parse_datetime_ms(at)
    found = admin.describe_topics(topics)
    partitions = [TopicPartition(t.name, row.partition) for t in found for row in t.partitions]
    results = admin.list_offsets(
        dict.fromkeys(partitions, spec), isolation_level=isolation, raise_errors=False
    )
    rows = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "offset": None if row.offset < 0 else row.offset,
            "timestamp": None if row.timestamp < 0 else row.timestamp,
            "leader_epoch": None if row.leader_epoch < 0 else row.leader_epoch,
        }
        for tp, row in results.items()
    ]
    out.table(rows, ["topic", "partition", "offset", "timestamp"])
    for error in results.errors.values():
        fail(str(error))
    if results.errors:
        raise SystemExit(1)


@admin_command(app, "delete-records", "kstore topic delete-records orders:0=1000 orders:1=end")
def delete_records(
    admin: AdminClient,
    out: Output,
    before: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC:PARTITION=OFFSET",
            autocompletion=completion.topic_partitions,
            help="Records before the offset are deleted; end: all committed records.",
        ),
    ],
) -> None:
    """Delete the oldest records of partitions."""
    offsets = {}
    for text, offset in key_values(before, "orders:0=1000").items():
        if offset != "end" and not offset.isdecimal():
            raise typer.BadParameter(f"{offset!r} is not an offset or 'end'")
        offsets[parse_partition(text)] = -1 if offset == "end" else int(offset)
    out.report(
        admin.delete_records(offsets, raise_errors=False),
        lambda tp, start: (
            {"topic": tp.topic, "partition": tp.partition, "log_start_offset": start},
            f"{tp.topic}:{tp.partition} starts at {start}",
        ),
    )
