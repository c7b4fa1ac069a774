"""What other brokers of the cluster set at run time: every change below /config, and of the feature
levels, is read again and acts here too, as if it had been made on this broker.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from kstore.broker.coordination.store import StoreClosedError, StoreError, WatchEvent
from kstore.broker.runtime.cluster_topics import ClusterTopics
from kstore.broker.runtime.features import FEATURE_NODE

if TYPE_CHECKING:
    from kstore.broker.runtime.broker import Broker

__all__ = ["ConfigWatch"]

log = logging.getLogger("kstore.broker")
CONFIG = "/config"
TOPICS = "topics"
DYNAMIC = frozenset({"brokers", "groups", "client-metrics"})
QUOTAS = frozenset({"users", "clients", "ips"})
RETRY_S = 0.2


class ConfigWatch:
    """Watches, for as long as the store is open."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._changed: set[str] = set()  # paths
        self._acting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to watch; before anything of it is read. Blocks."""
        for path in (CONFIG, FEATURE_NODE):
            self._broker.store.watch(path, self._on_event)

    def _on_event(self, event: WatchEvent) -> None:
        """Runs on a thread of the store's."""
        with suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            self._broker.loop.call_soon_threadsafe(self._note, event.path)

    def _note(self, path: str) -> None:
        self._changed.add(path)
        if self._acting is None or self._acting.done():
            self._acting = self._broker.loop.create_task(self._run())

    async def _run(self) -> None:
        while self._changed:
            paths, self._changed = self._changed, set()
            try:
                await self._act(paths)
            except StoreClosedError:
                return  # the next session's watch begins with a look at everything
            except StoreError as problem:
                log.warning("what was set in the cluster can't be read: %s", problem)
                self._changed |= paths
                await asyncio.sleep(RETRY_S)
            except Exception:
                log.exception("what was set in the cluster does not act here: %s", sorted(paths))

    async def _act(self, paths: set[str]) -> None:
        if FEATURE_NODE in paths:
            paths = paths - {FEATURE_NODE}
            if self._broker.features is not None:
                await self._broker.run_blocking(self._broker.features.reload)
                self._broker.plane.forget_answers()
        if paths:
            await self._act_on_configs(paths)

    async def _act_on_configs(self, paths: set[str]) -> None:
        parts = [path.split("/") for path in paths]
        if any(len(part) < 3 for part in parts):  # a new session: anything may have changed
            kinds = DYNAMIC | QUOTAS
            topics = None
        else:
            kinds = frozenset(part[2] for part in parts)
            topics = {part[3] for part in parts if part[2] == TOPICS and len(part) > 3}
        for kind in sorted(kinds & DYNAMIC):
            await self._broker.configs.reload(kind)
        if kinds & QUOTAS and self._broker.quotas is not None:
            await self._broker.run_blocking(self._broker.quotas.reload)
            self._broker.quotas.tell()
        elif kinds & QUOTAS:
            self._find_quotas()
        if topics is None or topics:
            in_cluster = self._broker.topics
            assert isinstance(in_cluster, ClusterTopics)
            await in_cluster.reload_configs(topics)

    def _find_quotas(self) -> None:
        """The first quota of the cluster: from here on they are kept."""
        from kstore.broker.runtime.client_throttles import quotas_of

        quotas_of(self._broker)
