"""Settings of users, client ids and addresses in the coordination store. The layout, and the way in
which names become parts of a path, are those of Kafka with ZooKeeper.

/config/users/U, /config/clients/C, /config/ips/I and /config/users/U/clients/C hold quotas; a
user's node also has SCRAM credentials. This file does not interpret the values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from kstore.broker.coordination.store import BadPathError, NoNodeError

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Store

__all__ = ["DEFAULT", "alter", "children", "is_there", "read", "sanitize"]

DEFAULT = "<default>"
"""The node of the default entity; no sanitized name equals it."""


def sanitize(name: str | None) -> str:
    """A name as a part of a path; None is the default entity's.

    Kafka's form: percent-encoded UTF-8, in which only letters, digits and ``._-`` are unchanged.
    """
    if name is None:
        return DEFAULT
    part = quote(name, safe="").replace("~", "%7E")
    # These two are not valid names in a path.
    return part.replace(".", "%2E") if part in {".", ".."} else part


def desanitize(part: str) -> str | None:
    """Reverse `sanitize`; None for the default entity."""
    return None if part == DEFAULT else unquote(part)


def is_there(store: Store, folder: str) -> bool:
    """Whether there were ever any settings below ``/config/FOLDER``."""
    return store.exists(f"/config/{folder}")


def children(store: Store, path: str) -> Iterator[tuple[str | None, str]]:
    """(name, path) of each entity below a path."""
    try:
        parts = store.children(path)
    except NoNodeError:
        return
    for part in parts:
        yield desanitize(part), f"{path}/{part}"


def read(store: Store, path: str) -> dict[str, str]:
    """The settings at a path. Empty if there is no such node, or if the path is not valid."""
    try:
        data, _ = store.get(path)
    except (NoNodeError, BadPathError):
        return {}
    return dict(json.loads(data)["config"]) if data else {}


def alter(store: Store, path: str, changes: Mapping[str, str | None]) -> None:
    """Set values; None removes one. Raises BadPathError for a name that is too long. Blocks until
    the change is durable.
    """
    config = read(store, path)
    for key, value in changes.items():
        if value is None:
            config.pop(key, None)
        else:
            config[key] = value
    node = json.dumps({"version": 1, "config": config}, separators=(",", ":")).encode()
    if store.exists(path):
        store.set(path, node)
    elif config:
        store.create(path, node, parents=True)
