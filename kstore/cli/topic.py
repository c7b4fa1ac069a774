"""``kstore topic``: create, delete, list and describe topics of a running broker."""

from __future__ import annotations

import json as json_text
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kstore.cli.failure import guarded
from kstore.cli.options import TIMEOUT_MS, Bootstrap, Json, Topic
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.clients import AdminClient

__all__ = ["app", "create", "delete", "describe", "list_topics", "parse_configs"]

app = typer.Typer(help="Create, delete, list and describe topics.", no_args_is_help=True)

# The source number of a config that was set on the topic itself, in DescribeConfigs.
_SET_ON_TOPIC = 1
_CREATE_EXAMPLE = "Example: kstore topic create orders --partitions 4 -c cleanup.policy=compact"


def parse_configs(items: Sequence[str]) -> dict[str, str | None]:
    """Read KEY=VALUE items; typer.BadParameter for one that is not."""
    found: dict[str, str | None] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{item!r} is not KEY=VALUE, such as retention.ms=3600000")
        found[key.strip()] = value.strip()
    return found


@app.command(epilog=_CREATE_EXAMPLE)
@guarded
def create(
    topic: Topic,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="How many; -1: the broker's default.")
    ] = -1,
    replication_factor: Annotated[int, typer.Option(help="-1: the broker's default.")] = -1,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="KEY=VALUE", help="A topic config."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="An existing topic is no error.")
    ] = False,
    bootstrap: Bootstrap = "localhost:9092",
    json: Json = False,
) -> None:
    """Create a topic."""
    from kstore.clients import AdminClient, NewTopic
    from kstore.errors import TopicAlreadyExistsError

    new = NewTopic(topic, partitions, replication_factor, parse_configs(config or []))
    with AdminClient(bootstrap, default_api_timeout_ms=TIMEOUT_MS) as admin:
        try:
            admin.create_topics([new])
        except TopicAlreadyExistsError:
            if not if_not_exists:
                raise
            _say(json, {"exists": topic}, f"{topic} exists")
            return
    _say(json, {"created": topic}, f"created {topic}")


@app.command(epilog="Example: kstore topic delete orders payments")
@guarded
def delete(
    topics: Annotated[list[str], typer.Argument(help="The topics' names.")],
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="A missing topic is no error.")
    ] = False,
    bootstrap: Bootstrap = "localhost:9092",
    json: Json = False,
) -> None:
    """Delete topics and all that is in them."""
    from kstore.clients import AdminClient
    from kstore.errors import UnknownTopicOrPartitionError

    with AdminClient(bootstrap, default_api_timeout_ms=TIMEOUT_MS) as admin:
        for topic in topics:
            try:
                admin.delete_topics([topic])
            except UnknownTopicOrPartitionError:
                if not if_exists:
                    raise
                continue
            _say(json, {"deleted": topic}, f"deleted {topic}")


@app.command("list", epilog="Example: kstore topic list --json")
@guarded
def list_topics(
    internal: Annotated[
        bool, typer.Option("--internal", help="Also __consumer_offsets and the like.")
    ] = False,
    bootstrap: Bootstrap = "localhost:9092",
    json: Json = False,
) -> None:
    """List the topics by name."""
    from kstore.clients import AdminClient

    with AdminClient(bootstrap, default_api_timeout_ms=TIMEOUT_MS) as admin:
        for topic in admin.describe_topics():
            if internal or not topic.is_internal:
                data = {"name": topic.name, "partitions": len(topic.partitions)}
                _say(json, data, topic.name)


@app.command(epilog="Example: kstore topic describe orders")
@guarded
def describe(topic: Topic, bootstrap: Bootstrap = "localhost:9092", json: Json = False) -> None:
    """Show a topic's id, its own configs, and its partitions with leaders and offsets."""
    from kstore.clients import AdminClient

    with AdminClient(bootstrap, default_api_timeout_ms=TIMEOUT_MS) as admin:
        found = _description(admin, topic)
    if json:
        print(json_text.dumps(found))
        return
    configs = " ".join(f"{key}={value}" for key, value in found["configs"].items())
    print(f"{found['name']}  id {found['id']}  {configs or 'no configs of its own'}")
    for row in found["partitions"]:
        replicas = ",".join(map(str, row["replicas"]))
        print(
            f"  {row['partition']:>4}  leader {row['leader']}  replicas {replicas}  "
            f"offsets {row['log_start_offset']} to {row['end_offset']}"
        )


def _description(admin: AdminClient, name: str) -> dict[str, Any]:
    (topic,) = admin.describe_topics([name])
    partitions = [TopicPartition(name, row.partition) for row in topic.partitions]
    starts = admin.list_offsets(dict.fromkeys(partitions, "earliest"))
    ends = admin.list_offsets(dict.fromkeys(partitions, "latest"))
    configs = admin.describe_configs(name)
    return {
        "name": name,
        "id": str(topic.topic_id),
        "is_internal": topic.is_internal,
        "configs": {
            key: entry.value for key, entry in configs.items() if entry.source == _SET_ON_TOPIC
        },
        "partitions": [
            {
                "partition": row.partition,
                "leader": row.leader,
                "leader_epoch": row.leader_epoch,
                "replicas": row.replicas,
                "isr": row.isr,
                "log_start_offset": starts[TopicPartition(name, row.partition)].offset,
                "end_offset": ends[TopicPartition(name, row.partition)].offset,
            }
            for row in topic.partitions
        ],
    }


def _say(as_json: bool, data: dict[str, object], sentence: str) -> None:
    print(json_text.dumps(data) if as_json else sentence)
