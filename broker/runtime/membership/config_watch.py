"""What other brokers of the cluster set at run time: every change below /config, of the feature
levels and of the ACLs is read again and acts here too, as if it had been made on this broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Set
from contextlib import suppress
from typing import TYPE_CHECKING

from kstore.broker.coordination.store import StoreClosedError, StoreError, WatchEvent
from kstore.broker.runtime.metadata.features import FEATURE_NODE
from kstore.broker.runtime.security.acl_store import ACL_FOLDERS
from kstore.broker.runtime.topics.cluster_topics import ClusterTopics

if TYPE_CHECKING:
    from kstore.broker.runtime.broker import Broker

__all__ = ["TOPICS", "ConfigWatch", "reload"]

log = logging.getLogger("kstore.broker")
CONFIG = "/config"
USERS = "/config/users"
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
        acls = ACL_FOLDERS if self._broker.config["authorizer.class.name"] else ()
        for path in (CONFIG, FEATURE_NODE, *acls):
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
                await reload(self._broker, paths)
            except StoreClosedError:
                return  # the next session's watch begins with a look at everything
            except StoreError as problem:
                self._changed |= paths
                if self._broker.store.away:
                    return  # its return is told as a change of everything
                log.warning("what was set in the cluster can't be read: %s", problem)
                await asyncio.sleep(RETRY_S)
            except Exception:
                log.exception("what was set in the cluster does not act here: %s", sorted(paths))


async def reload(broker: Broker, paths: Set[str]) -> None:
    """Read again what lies at these paths, or below, and let what has changed act."""
    if FEATURE_NODE in paths:
        paths = paths - {FEATURE_NODE}
        if broker.features.made is not None:
            await broker.run_blocking(broker.features.made.reload)
            broker.plane.forget_answers()
    acls = {path for path in paths if path.startswith(ACL_FOLDERS)}
    if acls and broker.acls is not None:
        await broker.acls.reload(acls)
    if paths - acls:
        await _reload_configs(broker, paths - acls)


async def _reload_configs(broker: Broker, paths: Set[str]) -> None:
    parts = [path.split("/", 3) for path in paths]
    topics: set[str] | None = None
    kinds = DYNAMIC | QUOTAS
    if all(len(part) > 2 for part in parts):
        kinds = frozenset(part[2] for part in parts)
        topics = {part[3] for part in parts if part[2] == TOPICS and len(part) > 3}
    # Else it is a new session: anything may have changed.
    for kind in sorted(kinds & DYNAMIC):
        await broker.configs.reload(kind)
    scram = broker.scram.made
    if scram is not None and "users" in kinds:
        users = {path for path in paths if path.startswith(USERS)} or {CONFIG}
        await broker.run_blocking(lambda: scram.reload(users))
    if kinds & QUOTAS:
        quotas = broker.quotas.made
        if quotas is None:
            broker.quotas()  # the first quota of the cluster: from here on they are kept
        else:
            await broker.run_blocking(quotas.stored.reload)
            quotas.stored.tell()
    if broker.security is not None and kinds & {"users", "brokers"}:
        broker.security.users_changed()
    if topics is None or topics:
        in_cluster = broker.topics
        assert isinstance(in_cluster, ClusterTopics)
        await in_cluster.reload_configs(topics)
