"""The dynamic settings of brokers, groups and client metrics: those that were set at run time. The
coordination store has them. They are loaded at the start, written through, and applied at once.
Settings of topics are in runtime/topics/topics.py.

api/metadata/configs.py checks them; this file stores and returns them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from kstore.broker.coordination import config_nodes
from kstore.broker.state.linear_regex import LinearRegex

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Store
    from kstore.config import BrokerConfig

__all__ = ["ClientMetrics", "DynamicConfigs"]

CLUSTER_DEFAULT = "<default>"
"""The name of the node with the settings of all brokers, as in Kafka."""
# Eligible leader replicas require this setting for the whole cluster (KIP-966), so it is always
# set.
ALWAYS_CLUSTER_WIDE = "min.insync.replicas"


class ClientMetrics(NamedTuple):
    """One client metrics subscription (KIP-714)."""

    name: str
    interval_ms: int
    metrics: tuple[str, ...]
    """Prefixes of metrics' names; ``*`` alone means all."""
    match: Mapping[str, LinearRegex]
    """Key (such as ``client_id``) to the regular expression that it must match."""


class DynamicConfigs:
    """The dynamic settings of brokers, groups and client metrics."""

    def __init__(
        self,
        config: BrokerConfig,
        store: Store,
        run_blocking: Callable[[Callable[[], Any]], Awaitable[Any]],
        report: Callable[[str], None],
    ) -> None:
        """``run_blocking`` runs a call that waits for the disk in a thread."""
        self.config = config
        self.cluster: dict[str, str] = {}
        """Settings of all brokers."""
        self.brokers: dict[str, dict[str, str]] = {}
        """Settings of one broker, by its id as text."""
        self.groups: dict[str, dict[str, str]] = {}
        """Settings of one group."""
        self.subscriptions: dict[str, dict[str, str]] = {}
        """Settings of one client metrics subscription."""
        self.subscriptions_version = 0
        """Increases with every change of a client metrics subscription."""
        self.lock = asyncio.Lock()
        """Held during a read-modify-write of settings."""
        self.when_changed: Callable[[frozenset[str]], Awaitable[None]] | None = None
        """Callbacks that apply changed broker configs before the change is answered."""
        self.topic_defaults: Sequence[tuple[str, str, int]] | None = None
        self.topic_default_rows: Mapping[str, Any] | None = None
        """Cached rows of DescribeConfigs for topics' defaults; None after a change."""
        self._reported: set[str] = set()
        self._store = store
        self._run_blocking = run_blocking
        self._report = report
        self._group_values: dict[str, Mapping[str, Any]] = {}
        self._client_metrics: tuple[int, list[ClientMetrics]] = (-1, [])
        self._changed: frozenset[str] = frozenset()
        config.watch(self._note)

    def load(self) -> None:
        """Read the store, and apply its settings. Blocks."""
        self._take_brokers(config_nodes.read_configs(self._store, "brokers"))
        self.groups = config_nodes.read_configs(self._store, "groups")
        self.subscriptions = config_nodes.read_configs(self._store, "client-metrics")
        self._act()

    async def reload(self, kind: str) -> None:
        """Read the settings of ``brokers``, ``groups`` or ``client-metrics`` again, since another
        broker may have changed them, and apply the changes.
        """
        async with self.lock:
            found = await self._run_blocking(lambda: config_nodes.read_configs(self._store, kind))
            if kind == "groups":
                self.groups = found
                self._group_values.clear()
            elif kind == "client-metrics":
                if found != self.subscriptions:
                    self.subscriptions = found
                    self.subscriptions_version += 1
            else:
                self._take_brokers(found)
                await self._act_everywhere()

    def _take_brokers(self, found: dict[str, dict[str, str]]) -> None:
        self.cluster = found.pop(CLUSTER_DEFAULT, {})
        self.cluster.setdefault(ALWAYS_CLUSTER_WIDE, self.config.text(ALWAYS_CLUSTER_WIDE))
        self.brokers = found

    # ---- reading ----

    def group(self, group_id: str) -> Mapping[str, Any]:
        """The typed settings of one group, by name: such as ``consumer.session.timeout.ms``.

        A group without settings of its own has the broker's
        (``group.consumer.session.timeout.ms``). The values are cached until a setting changes, so a
        call is cheap: call it at each use.
        """
        key = group_id if group_id in self.groups else ""
        found = self._group_values.get(key)
        if found is None:
            found = self._group_values[key] = self._typed_group(self.groups.get(key, {}))
        return found

    def client_metrics(self) -> list[ClientMetrics]:
        """Every client metrics subscription, ordered by name. They are cached until one changes."""
        from kstore.config.client_metrics_configs import CLIENT_METRICS_CONFIGS

        version, found = self._client_metrics
        if version == self.subscriptions_version:
            return found
        found = []
        for name, given in sorted(self.subscriptions.items()):
            values = {
                row.name: row.parse(given[row.name], name) if row.name in given else row.default
                for row in CLIENT_METRICS_CONFIGS.values()
            }
            pairs = (item.partition("=") for item in values["match"])
            match = {key.strip(): LinearRegex(pattern.strip()) for key, _, pattern in pairs}
            found.append(ClientMetrics(name, values["interval.ms"], values["metrics"], match))
        self._client_metrics = (self.subscriptions_version, found)
        return found

    def _typed_group(self, given: Mapping[str, str]) -> Mapping[str, Any]:
        from kstore.config.group_configs import GROUP_CONFIGS

        values: dict[str, Any] = {}
        for row in GROUP_CONFIGS.values():
            broker_name = row.synonyms[0][0] if row.synonyms else row.name
            if row.name in given:
                values[row.name] = row.parse(given[row.name], "group config")
            elif broker_name in self.config:
                values[row.name] = self.config[broker_name]
            else:
                values[row.name] = row.default
        return MappingProxyType(values)

    # ---- changing ----

    async def set_broker(self, broker_id: str, configs: Mapping[str, str]) -> None:
        """Replace the settings of one broker, or with an empty id those of all brokers."""
        kept = dict(configs)
        node = broker_id or CLUSTER_DEFAULT
        await self._write("brokers", node, kept)
        if broker_id:
            self.brokers[broker_id] = kept
        else:
            self.cluster = kept
        await self._act_everywhere()

    async def _act_everywhere(self) -> None:
        """Apply the settings of brokers before the change is answered."""
        self._changed = frozenset()
        self.topic_defaults = self.topic_default_rows = None
        self._act()
        if self.when_changed is not None and self._changed:
            await self.when_changed(self._changed)

    async def set_group(self, group_id: str, configs: Mapping[str, str]) -> None:
        """Replace the settings of one group."""
        await self._write("groups", group_id, dict(configs))
        _replace(self.groups, group_id, configs)
        self._group_values.clear()

    async def set_client_metrics(self, name: str, configs: Mapping[str, str]) -> None:
        """Replace one client metrics subscription, or remove it if ``configs`` is empty."""
        await self._write("client-metrics", name, dict(configs))
        _replace(self.subscriptions, name, configs)
        self.subscriptions_version += 1

    def warn_if_without_effect(self, name: str, documentation: str) -> None:
        """Report to the operator, once for each name, that a setting has no effect."""
        if documentation.startswith("No effect here") and name not in self._reported:
            self._reported.add(name)
            self._report(f"{name} was set. {documentation}")

    def _note(self, changed: frozenset[str]) -> None:
        self._changed = changed
        self._group_values.clear()

    async def _write(self, kind: str, name: str, configs: dict[str, str]) -> None:
        await self._run_blocking(
            lambda: config_nodes.write_configs(self._store, kind, name, configs)
        )

    def _act(self) -> None:
        from kstore.config import ConfigError

        mine = self.brokers.get(str(self.config["node.id"]), {})
        try:
            self.config.set_dynamic(self.cluster, mine)
        except ConfigError as problem:
            self._report(f"dynamic settings are not used: {problem}")


def _replace(table: dict[str, dict[str, str]], name: str, configs: Mapping[str, str]) -> None:
    if configs:
        table[name] = dict(configs)
    else:
        table.pop(name, None)
