"""What a task or a driver of a sink has of its brokers: one cluster client on a loop in its own
thread, and admin requests on the same connections.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any, Self, TypeVar

from kstore.clients.admin.offsets import OffsetsAdmin
from kstore.clients.admin.topics import TopicsAdmin
from kstore.clients.core.metadata import TopicView
from kstore.clients.io.cluster import ClusterClient
from kstore.clients.io.loop_thread import LoopThread
from kstore.clients.io.nodes import ANY
from kstore.config.client.configs import client_settings
from kstore.pipeline.errors import PipelineError
from kstore.pipeline.sink.settings import SinkSettings, admin_settings, producer_settings

__all__ = ["Brokers", "SinkAdmin"]

T = TypeVar("T")

NEW_TOPIC_MS = 2_000
NEEDED = ("kstore.kip391", "kstore.kip359", "kstore.copybatches")


class SinkAdmin(TopicsAdmin, OffsetsAdmin):
    """The admin requests of a sink."""


class Brokers:
    """A context: leaving it closes the connections, even if requests are in flight. `run` may be
    called by any thread; the rest is for coroutines that it runs.
    """

    def __init__(self, settings: SinkSettings) -> None:
        self.settings = producer_settings(settings)
        self.cluster = ClusterClient(self.settings)
        admin = client_settings("admin", admin_settings(settings))
        self.admin = SinkAdmin(self.cluster, admin)
        self.thread = LoopThread()
        self._timeout_ms: int = admin["default.api.timeout.ms"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.thread.run(self.cluster.close())
        self.thread.close()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result or exception."""
        return self.thread.run(coroutine)

    async def check(self) -> None:
        """Check, before anything is created, that the brokers support given offsets and leader
        epochs. A broker says so when a connection is opened.
        """
        cluster = self.cluster
        connection = await cluster.retrying(lambda: cluster.connection(ANY), self._timeout_ms)
        missing = [name for name in NEEDED if not connection.versions.has(name)]
        if missing:
            raise PipelineError(
                f"the brokers do not accept given offsets ({', '.join(missing)})",
                remedy="Set kstore.delivery to at-least-once for brokers other than kstore's",
            )

    async def look_up(self, topics: Iterable[str]) -> None:
        """Fetch the metadata of these topics in one request."""
        names = list(topics)
        await self.cluster.retrying(lambda: self.cluster.refresh(names), self._timeout_ms)

    async def topic(self, name: str, *, may_be_new: bool = False) -> TopicView:
        """A topic. ``may_be_new``: the asked broker may not know it yet, so ask again for a short
        time. Raises the brokers' error about it, UnknownTopicOrPartitionError if there is none.
        """
        view = self.cluster.view

        async def found() -> TopicView:
            return view.topic(name)

        if name not in view.topics and name not in view.topic_errors:
            await self.look_up([name])
        if not may_be_new:
            return view.topic(name)
        return await self.cluster.retrying(found, NEW_TOPIC_MS, [name])
