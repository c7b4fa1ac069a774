"""Configs of brokers, topics, groups and others: value, source, default, and how to change one."""

from __future__ import annotations

from starlette.responses import Response

from kstore.clients.admin import ConfigEntry, ConfigResource, ConfigSource
from kstore.config.topic_configs import TOPIC_CONFIGS
from kstore.console.pages.page import Page, PageError, path
from kstore.errors import KafkaError

__all__ = ["change", "configs", "resources"]

KINDS = ("broker", "topic", "group", "client-metrics", "broker-logger")
SOURCES = {
    ConfigSource.DYNAMIC_TOPIC: "topic",
    ConfigSource.DYNAMIC_BROKER: "this broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER: "all brokers",
    ConfigSource.STATIC_BROKER: "broker's file",
    ConfigSource.DEFAULT: "default",
    ConfigSource.DYNAMIC_BROKER_LOGGER: "logger",
    ConfigSource.DYNAMIC_CLIENT_METRICS: "client metrics",
    ConfigSource.DYNAMIC_GROUP: "group",
}
OWN = {
    "topic": {ConfigSource.DYNAMIC_TOPIC},
    "broker": {ConfigSource.DYNAMIC_BROKER},
    "group": {ConfigSource.DYNAMIC_GROUP},
    "client-metrics": {ConfigSource.DYNAMIC_CLIENT_METRICS},
    "broker-logger": {ConfigSource.DYNAMIC_BROKER_LOGGER},
}
ALL_BROKERS = "all"
"""In a path, the broker "" (the default of all)."""


async def resources(page: Page) -> Response:
    """GET /ui/configs: resources with configs."""
    cluster = await page.admin.describe_cluster()
    topics = await page.admin.list_topics()
    groups = [each.group_id for each in await page.admin.list_groups()]
    try:
        named = await page.admin.list_config_resources(["client-metrics"])
    except KafkaError:
        named = []  # not allowed, or a broker that can't list them
    links = {
        "broker": [ALL_BROKERS, *(str(each.node_id) for each in cluster.brokers)],
        "topic": topics,
        "group": groups,
        "client-metrics": [each.name for each in named],
        "broker-logger": [str(each.node_id) for each in cluster.brokers],
    }
    return page.render("resources.html", title="Configs", links=links)


def _resource(page: Page) -> ConfigResource:
    kind, name = page.name("kind"), page.name("name")
    if kind not in KINDS:
        raise PageError(f"{kind!r} is not one of {', '.join(KINDS)}", 404)
    if kind == "broker" and name == ALL_BROKERS:
        name = ""
    if kind in {"broker", "broker-logger"} and name and not name.isdecimal():
        raise PageError(f"{name!r} is not a broker's id", 404)
    return ConfigResource(kind, name)  # type: ignore[arg-type]


async def configs(page: Page) -> Response:
    """GET /ui/configs/KIND/NAME."""
    resource = _resource(page)
    found = await page.admin.describe_configs(
        resource.name, resource=resource.kind, synonyms=True, documentation=True
    )
    wanted, only = page.text("q").lower(), page.text("changed") == "1"
    rows = []
    for entry in found.values():
        default = _default(resource, entry)
        differs = entry.source not in {ConfigSource.DEFAULT, ConfigSource.UNKNOWN}
        if wanted in entry.name.lower() and (differs or not only):
            rows.append({
                "entry": entry, "default": default, "differs": differs,
                "source": SOURCES.get(entry.source, "unknown"),
                "own": entry.source in OWN[resource.kind] or (
                    not resource.name and entry.source == ConfigSource.DYNAMIC_DEFAULT_BROKER
                ),
            })  # fmt: skip
    edited = found.get(page.text("edit"))
    shown = page.name("name")
    return page.render(
        "configs.html", title=f"Configs of {resource.kind} {shown}", kind=resource.kind,
        name=shown, rows=sorted(rows, key=lambda row: row["entry"].name), q=page.text("q"),
        only=only, edited=edited, default=_default(resource, edited) if edited else None,
        value=page.text("value", (edited.value or "") if edited else ""),
    )  # fmt: skip


def _default(resource: ConfigResource, entry: ConfigEntry) -> str | None:
    """The value without any setting: the broker's, or kstore's own default."""
    for each in entry.synonyms:
        if each.source == ConfigSource.DEFAULT:
            return each.value
    if entry.source == ConfigSource.DEFAULT:
        return entry.value
    row = TOPIC_CONFIGS.get(entry.name) if resource.kind == "topic" else None
    return None if row is None or row.default is None else row.format(row.default)


async def change(page: Page) -> Response:
    """POST /ui/configs/KIND/NAME: set, reset, or only validate."""
    resource, form = _resource(page), page.form
    here = path("configs", resource.kind, page.name("name"))
    key, value, action = form.get("key", ""), form.get("value", ""), form.get("action", "set")
    if not key:
        raise PageError("enter the config's name")
    wanted = None if action == "unset" else value
    try:
        await page.admin.alter_configs(
            resource.name, {key: wanted}, resource=resource.kind, validate_only=action == "check"
        )
    except (ValueError, KafkaError) as error:
        return page.failed(str(error), here)
    if action == "check":
        return page.done(f"{key}={value} is valid. Nothing was changed.", here)
    what = "was reset to its default" if wanted is None else f"is {value} now"
    return page.done(f"{key} {what}.", here)
