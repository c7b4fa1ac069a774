"""Copies all persistent nodes from a store of any kind to another one, for backups. It does not
know what the nodes mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kstore.broker.coordination.store import Create, NoNodeError, Op, StoreError

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Store

__all__ = ["copy_tree", "put_tree"]

TRIES = 5
AT_ONCE = 200
ANNOUNCEMENTS = "/log_dir_event_notification/"
"""Folders of sequential nodes that notify running brokers."""


def copy_tree(store: Store) -> dict[str, bytes]:
    """The persistent nodes at one moment: path to data. Raises StoreError if they changed during
    each of several attempts.
    """
    before: dict[str, tuple[int, bytes]] = {}
    for _ in range(TRIES):
        found = _walk(store)
        if found == before:
            return {path: data for path, (_, data) in found.items()}
        before = found
    raise StoreError(
        f"the coordination store changed during each of {TRIES} attempts to read it: try again "
        "when fewer topics and settings are changed"
    )


def _walk(store: Store) -> dict[str, tuple[int, bytes]]:
    found: dict[str, tuple[int, bytes]] = {}
    level = ["/"]
    while level:
        for path, row in zip(level, store.read_many(level), strict=True):
            if row is not None and not row[1].ephemeral_owner and path != "/":
                found[path] = (row[1].mzxid, row[0])
        level = [child for path in level for child in _children(store, path)]
    return found


def _children(store: Store, path: str) -> list[str]:
    try:
        names = store.children(path)
    except NoNodeError:
        return []
    return [f"{'' if path == '/' else path}/{name}" for name in names]


def put_tree(store: Store, nodes: Mapping[str, bytes]) -> None:
    """Create the nodes in an empty store. Raises StoreError if it is not empty."""
    there = store.children("/")
    if there:
        raise StoreError(f"the coordination store is not empty: it has /{there[0]}, for example")
    ops: list[Op] = [
        Create(path, nodes[path])
        for path in sorted(nodes, key=lambda path: (path.count("/"), path))
        if not path.startswith(ANNOUNCEMENTS)
    ]
    for start in range(0, len(ops), AT_ONCE):
        store.multi(ops[start : start + AT_ONCE])
