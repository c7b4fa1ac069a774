"""Loads the modules that serve an API at its first request. A start loads none of them, and most
brokers never need all.

A thread loads them, so that the loop continues: some wait for the disk, and all modules for groups
take about 30 ms. The first request and the later requests of its connection wait. Then they are
processed as if they had just arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import TYPE_CHECKING

from kstore.broker.api import FAST, ApiRow
from kstore.broker.runtime.imports import import_modules
from kstore.broker.runtime.slices import SLICE_S
from kstore.protocol.registry import APIS

if TYPE_CHECKING:
    import asyncio

    from kstore._fast.network.connection import Connection

__all__ = ["FULL_DISK", "IN_CLUSTER", "WITH_AUTHORIZER", "Loading", "modules"]

ALWAYS = ("broker.api.requests.large_requests", "broker.api.requests.splitting")
IN_CLUSTER = ("broker.api.controller.forwarding", "broker.api.controller.between_brokers")
FULL_DISK = ("broker.api.requests.failed_stores",)
WITH_AUTHORIZER = ("broker.api.security.permissions",)
COORDINATOR = (
    "broker.runtime.coordinators.partition_writer", "broker.runtime.coordinators.topic",
    "broker.runtime.topics.internal_topics",
)  # fmt: skip
SHARE_COORDINATOR = (
    "broker.runtime.shares.share_coordinator", "broker.runtime.shares.coordinator_persister",
)  # fmt: skip
PARTS: Mapping[str, tuple[str, ...]] = {
    "groups": (
        *COORDINATOR, "broker.runtime.groups.group_coordinator",
        "broker.runtime.groups.expansion_gates", "broker.runtime.groups.share_states",
        "config.group_configs",
    ),
    "groups.classic": (
        "broker.state.groups.classic.join", "broker.state.groups.classic.sync",
        "protocol.coordinator_records.classic",
    ),
    "groups.consumer": (
        "broker.state.groups.consumer.heartbeat", "broker.state.groups.consumer.records",
        "protocol.coordinator_records.consumer",
    ),
    "groups.share": (
        "broker.state.groups.share.heartbeat", "broker.state.groups.share.records",
        "broker.state.groups.share.offsets", "protocol.coordinator_records.share_groups",
        *SHARE_COORDINATOR,
    ),
    "groups.share_offsets": (
        "broker.state.groups.share.offsets", "protocol.coordinator_records.share_groups",
        *SHARE_COORDINATOR,
    ),
    "groups.streams": (
        "broker.state.groups.streams.heartbeat", "broker.state.groups.streams.timers",
        "broker.state.groups.streams.records", "protocol.coordinator_records.streams",
    ),
    "logs.log_dirs": ("broker.runtime.log_dirs.replica_moves",),
    "metadata.api_versions": ("broker.runtime.metadata.features",),
    "metadata.metadata": ("broker.runtime.topics.auto_topic_creation",),
    "metadata.features": ("broker.runtime.metadata.features",),
    "quotas": ("broker.runtime.quotas.client_quota_manager",),
    "shares": (
        *COORDINATOR, *SHARE_COORDINATOR, "broker.runtime.shares.share_partition_manager",
        "config.group_configs",
    ),
    "telemetry": ("broker.runtime.telemetry.client_metrics", "config.client_metrics_configs"),
    "transactions": (
        *COORDINATOR, "broker.runtime.transactions.transaction_coordinator",
        "broker.runtime.transactions.markers", "broker.runtime.transactions.admission",
        "broker.runtime.transactions.producer_ids", "broker.runtime.transactions.produce",
        "errors.group_errors",
    ),
}  # fmt: skip
"""Folder or module of handlers to modules that they need but do not import: parts that are created
on first use. All are below kstore.
"""


def modules(api_key: int, row: ApiRow, around: tuple[str, ...] = ()) -> list[str]:
    """The modules that serve an API. Each comes after the modules that it imports."""
    handler, _, _ = row.handler.partition(":")
    room, _, _ = handler.partition(".")
    own = (f"protocol.{APIS[api_key].module}", f"broker.api.{handler}")
    return [
        f"kstore.{name}"
        for name in (*own, *PARTS.get(room, ()), *PARTS.get(handler, ()), *ALWAYS, *around)
    ]


class Loading:
    """Which APIs' modules are loaded, and the connections whose first request waits for them."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        rows: Mapping[int, ApiRow],
        around: Callable[[int], tuple[str, ...]],
    ) -> None:
        """``around``: the modules below kstore that this broker adds around an API's handler."""
        self._loop = loop
        self._rows = rows
        self._around = around
        self._loaded = {key for key, row in rows.items() if row.handler == FAST}
        self._threads: ThreadPoolExecutor | None = None
        self._loads: dict[int, asyncio.Future[None]] = {}
        self._held: dict[int, list[Connection]] = {}

    def holds(self, connection: Connection, api_key: int) -> bool:
        """Whether a request must wait for its modules. It is handled again when they are loaded."""
        if api_key in self._loaded:
            return False
        connection.hold()
        self._held.setdefault(api_key, []).append(connection)
        self._load(api_key)
        return True

    async def wait(self, api_key: int) -> None:
        """Wait for an API's modules."""
        if api_key not in self._loaded:
            await self._load(api_key)

    def _load(self, api_key: int) -> asyncio.Future[None]:
        loading = self._loads.get(api_key)
        if loading is None:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(1, thread_name_prefix="kstore-imports")
            names = modules(api_key, self._rows[api_key], self._around(api_key))
            loading = self._loop.run_in_executor(self._threads, import_modules, names)
            self._loads[api_key] = loading
            loading.add_done_callback(lambda done: self._end(api_key, done))
        return loading

    def _end(self, api_key: int, done: asyncio.Future[None]) -> None:
        """End the wait. If a module cannot be loaded, the handler's import raises the error."""
        del self._loads[api_key]
        self._loaded.add(api_key)
        if not done.cancelled():
            done.exception()
        if not self._loads and self._threads is not None:
            self._threads.shutdown(wait=False)
            self._threads = None
        self._go_on(self._held.pop(api_key, []))

    def _go_on(self, held: list[Connection]) -> None:
        """Handle the requests that waited. Slow ones run in later turns of the loop."""
        end = monotonic() + SLICE_S
        while held:
            connection = held.pop()
            if not connection.is_closed:
                connection.admitted()
                if monotonic() >= end:
                    self._loop.call_soon(self._go_on, held)
                    return
