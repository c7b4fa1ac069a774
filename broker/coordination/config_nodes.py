"""Layout and format of the nodes of configs in the coordination store: Kafka's with ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kstore.broker.coordination.store import Create, NoNodeError, Set

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Store

__all__ = [
    "BROKER_CONFIGS",
    "TOPIC_CONFIGS",
    "config_node",
    "read_configs",
    "read_topic_configs",
    "set_configs",
    "write_configs",
]

TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
MAX_NAME = 400  # bytes of a path's last part


def read_topic_configs(store: Store, name: str) -> dict[str, str]:
    """The settings of a topic. Empty without a node."""
    try:
        data, _ = store.get(f"{TOPIC_CONFIGS}/{name}")
    except NoNodeError:
        return {}
    return dict(json.loads(data)["config"])


def set_configs(store: Store, topic: str, configs: Mapping[str, str]) -> None:
    """Replace the settings of a topic."""
    store.set(f"{TOPIC_CONFIGS}/{topic}", config_node(configs))


def read_configs(store: Store, kind: str) -> dict[str, dict[str, str]]:
    """The settings below ``/config/<kind>``, by name. Empty if there never were any."""
    folder = f"/config/{kind}"
    try:
        nodes = store.children(folder)
    except NoNodeError:
        return {}
    found = {}
    for node in nodes:
        written = json.loads(store.get(f"{folder}/{node}")[0])
        found[written.get("name") or _unquoted(node)] = written["config"]
    return found


def write_configs(store: Store, kind: str, name: str, configs: Mapping[str, str]) -> None:
    """Replace the settings of a name below ``/config/<kind>``. A node without settings is
    deleted.
    """
    path = f"/config/{kind}/{_quoted(name)}"
    exists = store.exists(path)
    if configs:
        store.ensure(f"/config/{kind}")
        node = {"version": 1, "config": dict(configs)}
        if "/#" in path:
            node["name"] = name
        store.multi([Set(path, _json(node)) if exists else Create(path, _json(node))])
    elif exists:
        store.delete(path)


def _quoted(name: str) -> str:
    """A name as the last part of a path, quoted as in Kafka, except <default>.

    A name that is too long for a path is replaced by # and its hash; the node contains the name.
    """
    if (name.isascii() and name.isalnum() and len(name) <= MAX_NAME) or name == "<default>":
        return name
    from hashlib import sha256
    from urllib.parse import quote

    quoted = quote(name, safe="")
    if name in {".", ".."}:
        quoted = quoted.replace(".", "%2E")
    return quoted if len(quoted) <= MAX_NAME else f"#{sha256(name.encode()).hexdigest()}"


def _unquoted(node: str) -> str:
    if "%" not in node:
        return node
    from urllib.parse import unquote

    return unquote(node)


def config_node(configs: Mapping[str, str]) -> bytes:
    """The settings of one entity in Kafka's format."""
    return _json({"version": 1, "config": dict(configs)})


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
