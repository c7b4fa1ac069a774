"""Follows settings that other brokers of the cluster change. Each change below /config, of the
feature levels, of the ACLs and of delegation tokens is read and applied, as if it had been made on
this broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Set
from contextlib import suppress
from typing import TYPE_CHECKING

from kstore.broker.coordination.store import StoreClosedError, StoreError, WatchEvent
from kstore.broker.runtime.config_changes.config_reload import CONFIG
from kstore.broker.runtime.metadata.features import FEATURE_NODE
from kstore.broker.runtime.security.acl_store import ACL_FOLDERS
from kstore.broker.runtime.security.delegation_tokens import TOKEN_FOLDER

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Store
    from kstore.broker.runtime.node import Node

__all__ = ["ConfigWatch"]

log = logging.getLogger("kstore.broker")
RETRY_S = 0.2


class ConfigWatch:
    """Watches the store while it is open."""

    def __init__(
        self, node: Node, store: Store, reload: Callable[[Set[str]], Awaitable[None]]
    ) -> None:
        """``reload`` reads the nodes at or below these paths again, and applies changes."""
        self._node = node
        self._store = store
        self._reload = reload
        self._changed: set[str] = set()  # paths
        self._acting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to watch. Call it before any of the settings are read. Blocks."""
        acls = ACL_FOLDERS if self._node.config["authorizer.class.name"] else ()
        tokens = (TOKEN_FOLDER,) if self._node.config["delegation.token.secret.key"] else ()
        for path in (CONFIG, FEATURE_NODE, *acls, *tokens):
            self._store.watch(path, self._on_event)

    def _on_event(self, event: WatchEvent) -> None:
        """Runs on a thread of the store."""
        with suppress(RuntimeError):  # the loop is closed: there is nothing to notify
            self._node.loop.call_soon_threadsafe(self._note, event.path)

    def _note(self, path: str) -> None:
        self._changed.add(path)
        if self._acting is None or self._acting.done():
            self._acting = self._node.loop.create_task(self._run())

    async def _run(self) -> None:
        while self._changed:
            paths, self._changed = self._changed, set()
            try:
                await self._reload(paths)
            except StoreClosedError:
                return  # the next session's watch begins by reading everything
            except StoreError as problem:
                self._changed |= paths
                if self._store.away:
                    return  # once the store answers again, everything counts as changed
                log.warning("the settings of the cluster can't be read: %s", problem)
                await asyncio.sleep(RETRY_S)
            except Exception:
                log.exception(
                    "a setting of the cluster has no effect on this broker: %s", sorted(paths)
                )
