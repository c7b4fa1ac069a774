"""Applies changed settings of the cluster: reads the nodes below /config, the feature levels, the
ACLs and the delegation tokens again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Set
from typing import TYPE_CHECKING

from kstore.broker.runtime.metadata.features import FEATURE_NODE
from kstore.broker.runtime.security.acl_store import ACL_FOLDERS
from kstore.broker.runtime.security.delegation_tokens import TOKEN_FOLDER

if TYPE_CHECKING:
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.metadata.dynamic_configs import DynamicConfigs
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.quotas.client_quota_manager import ClientQuotaManager
    from kstore.broker.runtime.security.acl_store import AclStore
    from kstore.broker.runtime.security.scram_users import ScramUsers
    from kstore.broker.runtime.security.security import Security
    from kstore.broker.runtime.topics.cluster_topics import ClusterTopics

__all__ = ["CONFIG", "TOPICS", "ConfigReload", "UserReload"]

CONFIG = "/config"
USERS = "/config/users"
TOPICS = "topics"
DYNAMIC = frozenset({"brokers", "groups", "client-metrics"})
QUOTAS = frozenset({"users", "clients", "ips"})


class UserReload:
    """Settings of users and clients: SCRAM credentials, quotas and delegation tokens."""

    def __init__(
        self,
        node: Node,
        scram: Lazy[ScramUsers],
        quotas: Lazy[ClientQuotaManager],
        security: Security | None,
    ) -> None:
        self._node = node
        self._scram = scram
        self._quotas = quotas
        self._security = security

    async def reload_tokens(self, paths: Set[str]) -> None:
        """Read the delegation tokens at or below these paths again."""
        tokens = None if self._scram.made is None else self._scram.made.tokens
        if tokens is not None:
            any_gone = await self._node.run_blocking(lambda: tokens.reload(paths))
            if any_gone and self._security is not None:
                self._security.users_changed()

    async def reload(self, kinds: Set[str], paths: Set[str]) -> None:
        """Read the settings of these kinds again. Settings of users: at or below these paths."""
        scram = self._scram.made
        if scram is not None and "users" in kinds:
            users = {path for path in paths if path.startswith(USERS)} or {CONFIG}
            await self._node.run_blocking(lambda: scram.reload(users))
        if kinds & QUOTAS:
            quotas = self._quotas.made
            if quotas is None:
                self._quotas()  # the first quota of the cluster: from now on quotas are applied
            else:
                await self._node.run_blocking(quotas.stored.reload)
                quotas.stored.notify()
        if self._security is not None and kinds & {"users", "brokers"}:
            self._security.users_changed()


class ConfigReload:
    """All settings of the cluster."""

    def __init__(
        self,
        configs: DynamicConfigs,
        topics: ClusterTopics,
        users: UserReload,
        acls: AclStore | None,
        reload_features: Callable[[], Awaitable[None]],
    ) -> None:
        self._configs = configs
        self._topics = topics
        self._users = users
        self._acls = acls
        self._reload_features = reload_features

    async def reload(self, paths: Set[str]) -> None:
        """Read the nodes at or below these paths again, and apply changes."""
        if FEATURE_NODE in paths:
            paths = paths - {FEATURE_NODE}
            await self._reload_features()
        acls = {path for path in paths if path.startswith(ACL_FOLDERS)}
        if acls and self._acls is not None:
            await self._acls.reload(acls)
        tokens = {path for path in paths if path.startswith(TOKEN_FOLDER)}
        if tokens:
            await self._users.reload_tokens(tokens)
        if paths - acls - tokens:
            await self._reload_configs(paths - acls - tokens)

    async def _reload_configs(self, paths: Set[str]) -> None:
        parts = [path.split("/", 3) for path in paths]
        topics: set[str] | None = None
        kinds = DYNAMIC | QUOTAS
        if all(len(part) > 2 for part in parts):
            kinds = frozenset(part[2] for part in parts)
            topics = {part[3] for part in parts if part[2] == TOPICS and len(part) > 3}
        # No paths: the session is new, so anything may have changed.
        for kind in sorted(kinds & DYNAMIC):
            await self._configs.reload(kind)
        await self._users.reload(kinds, paths)
        if topics is None or topics:
            await self._topics.reload_configs(topics)
