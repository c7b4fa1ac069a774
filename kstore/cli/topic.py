"""``kstore topic``: create, delete, list and describe topics of a running broker."""

from __future__ import annotations

import json as json_text
from collections.abc import Sequence
from typing import Annotated

import typer

from kstore.cli.failure import guarded
from kstore.cli.options import Bootstrap, Json

__all__ = ["app", "create", "delete", "describe", "list_topics", "parse_configs"]

app = typer.Typer(help="Create, delete, list and describe topics.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The topic's name.")]


def parse_configs(items: Sequence[str]) -> dict[str, str]:
    """Read KEY=VALUE items; typer.BadParameter for one that is not."""
    found = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{item!r} is not KEY=VALUE, such as retention.ms=3600000")
        found[key.strip()] = value.strip()
    return found


@app.command(
    epilog="Example: kstore topic create orders --partitions 4 --config cleanup.policy=compact"
)
@guarded
def create(
    name: Name,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="How many; -1 for the broker's default.")
    ] = -1,
    replication_factor: Annotated[int, typer.Option(help="-1 for the broker's default.")] = -1,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="KEY=VALUE", help="A topic config."),
    ] = None,
    if_not_exists: Annotated[bool, typer.Option(help="An existing topic is no error.")] = False,
    bootstrap: Bootstrap = "localhost:9092",
    json: Json = False,
) -> None:
    """Create a topic."""
    from kstore.clients import Admin
    from kstore.errors import TopicAlreadyExistsError

    configs = parse_configs(config or [])
    with Admin(bootstrap) as admin:
        try:
            admin.create_topic(
                name, partitions=partitions, replication_factor=replication_factor, configs=configs
            )
        except TopicAlreadyExistsError:
            if not if_not_exists:
                raise
    _say(json, {"created": name}, f"created {name}")


@app.command(epilog="Example: kstore topic delete orders payments")
@guarded
def delete(
    names: Annotated[list[str], typer.Argument(help="The topics' names.")],
    if_exists: Annotated[bool, typer.Option(help="A missing topic is no error.")] = False,
    bootstrap: Bootstrap = "localhost:9092",
    json: Json = False,
) -> None:
    """Delete topics and all that is in them."""
    from kstore.clients import Admin
    from kstore.errors import UnknownTopicOrPartitionError

    with Admin(bootstrap) as admin:
        for name in names:
            try:
                admin.delete_topic(name)
            except UnknownTopicOrPartitionError:
                if not if_exists:
                    raise
            else:
                _say(json, {"deleted": name}, f"deleted {name}")


@app.command("list", epilog="Example: kstore topic list --json")
@guarded
def list_topics(
    internal: Annotated[bool, typer.Option(help="Also __consumer_offsets and the like.")] = False,
    bootstrap: Bootstrap = "localhost:9092",
    json: Json = False,
) -> None:
    """List the topics by name."""
    from kstore.clients import Admin

    with Admin(bootstrap) as admin:
        for topic in sorted(admin.describe_topics(), key=lambda t: t.name):
            if internal or not topic.is_internal:
                _say(json, {"name": topic.name, "partitions": len(topic.partitions)}, topic.name)


@app.command(epilog="Example: kstore topic describe orders")
@guarded
def describe(name: Name, bootstrap: Bootstrap = "localhost:9092", json: Json = False) -> None:
    """Show a topic's id, configs, partitions, leaders and offsets."""


def _say(as_json: bool, data: dict[str, object], sentence: str) -> None:
    print(json_text.dumps(data) if as_json else sentence)
