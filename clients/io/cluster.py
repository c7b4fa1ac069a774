"""The cluster behind bootstrap servers, for asyncio: connections as needed, metadata that is kept
fresh, coordinators, and trying again.

Everything but the constructor is called on one event loop. Which records, groups or topics it is
about is the clients' business.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from kstore.clients.core.backoff import pause_ms, refresh_age_ms
from kstore.clients.core.metadata import Broker, ClusterView
from kstore.clients.io.connection import BrokerConnection
from kstore.clients.io.nodes import ANY, Nodes
from kstore.errors import (
    ErrorCode,
    KafkaError,
    NetworkError,
    RequestTimedOutError,
    error_for,
    raise_for,
)
from kstore.protocol.coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kstore.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kstore.protocol.schema import Message

__all__ = ["ANY", "GROUP", "TRANSACTION", "ClusterClient"]

T = TypeVar("T")
GROUP, TRANSACTION = 0, 1
FIND_MANY = 4
"""The version of FindCoordinator from which on it takes several keys (KIP-699)."""


class ClusterClient:
    """Settings are those of `client_settings`. The loop is the running one of the first call,
    unless it is given.
    """

    def __init__(
        self, settings: Mapping[str, Any], *, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self.settings = settings
        self.view = ClusterView(settings["kstore.kip232.enable"])
        self.on_update: list[Callable[[], None]] = []
        """Called after each metadata answer that was taken."""
        self._loop = loop
        self._nodes = Nodes(settings, self.view)
        self._coordinators: dict[tuple[int, str], int] = {}
        self._watched: frozenset[str] | None = frozenset()
        self._wanted = asyncio.Event()
        self._refresher: asyncio.Task[None] | None = None
        self._is_closed = False

    # ---- requests ----

    async def connection(self, node_id: int, *, lane: str = "") -> BrokerConnection:
        """An open connection to the broker (ANY: to any).

        Answers on one connection come in the order of the requests, so what may wait long at the
        broker (Fetch, JoinGroup) goes by another lane: a connection of its own.

        Raises NetworkError.
        """
        self._check()
        return await self._nodes.connection(node_id, lane)

    async def ask(
        self,
        node_id: int,
        request: Message,
        *,
        at_least: int = 0,
        at_most: int = 32767,
        extra_wait_ms: int = 0,
        lane: str = "",
    ) -> Message:
        """The answer to a request in the newest version that both sides have within the bounds.

        Raises NetworkError, UnsupportedVersionError, or, after request.timeout.ms + extra_wait_ms,
        RequestTimedOutError; the connection is then closed, since later answers wait behind it.
        """
        connection = await self.connection(node_id, lane=lane)
        version = connection.versions.choose(request.API_KEY, at_least=at_least, at_most=at_most)
        return await self._answer(connection, request, version, extra_wait_ms)

    async def _answer(
        self,
        connection: BrokerConnection,
        request: Message,
        version: int,
        extra_wait_ms: int = 0,
    ) -> Message:
        wait_ms = self.settings["request.timeout.ms"] + extra_wait_ms
        try:
            async with asyncio.timeout(wait_ms / 1000):
                return await connection.send(request, version)
        except TimeoutError:
            error = RequestTimedOutError(
                f"{connection.address} did not answer {type(request).__name__} within {wait_ms} ms"
            )
            connection.close(NetworkError(str(error.args[0])))
            raise error from None

    async def retrying(
        self, action: Callable[[], Awaitable[T]], timeout_ms: float, topics: Iterable[str] = ()
    ) -> T:
        """The result of action, repeated with growing pauses (retry.backoff.ms) while it raises
        retriable errors and time is left; then the last error is raised.

        Metadata of the topics, if any, is fetched anew where the error asks for that. An attempt is
        cancelled when time is up.
        """
        loop = self._own_loop()
        deadline = loop.time() + timeout_ms / 1000
        names = list(topics)
        last: KafkaError | None = None
        failures = 0
        while True:
            self._check()
            try:
                async with asyncio.timeout_at(deadline) as limit:
                    if last is not None and last.refresh_metadata and names:
                        await self.refresh(names)
                    return await action()
            except KafkaError as error:
                if not error.retriable or self._is_closed:
                    raise
                last = error
            except TimeoutError:
                if not limit.expired():
                    raise
                raise last or RequestTimedOutError(f"no answer within {timeout_ms:g} ms") from None
            failures += 1
            pause = self._pause_s(failures)
            if loop.time() + pause >= deadline:
                raise last
            await asyncio.sleep(pause)

    @property
    def _patience_ms(self) -> int:
        settings = self.settings
        wait_ms: int = settings.get("default.api.timeout.ms") or settings["max.block.ms"]
        return wait_ms

    def _pause_s(self, failures: int) -> float:
        settings = self.settings
        first, most = settings["retry.backoff.ms"], settings["retry.backoff.max.ms"]
        return pause_ms(failures, first, most, random.random()) / 1000

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def _check(self) -> None:
        if self._is_closed:
            raise RuntimeError("the client is closed")

    async def close(self) -> None:
        """Close the connections; requests under way fail with NetworkError."""
        self._is_closed = True
        if self._refresher is not None:
            self._refresher.cancel()
            await asyncio.wait([self._refresher])
        await self._nodes.close()

    # ---- metadata ----

    async def refresh(self, topics: Iterable[str] | None, *, create: bool = False) -> None:
        """Fetch metadata of topics (None: all) and of the brokers; `create` has the broker create
        missing topics, if it is set to. What the broker says of a topic is in the view.

        An answer that is older than what is known (KIP-232) is not taken, and another one asked
        for, for default.api.timeout.ms (a producer: max.block.ms).
        """
        names = None if topics is None else list(topics)
        rows = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=rows, allow_auto_topic_creation=create)
        loop = self._own_loop()
        deadline = loop.time() + self._patience_ms / 1000
        failures = 0
        while True:
            answer, connection = await self._metadata(request)
            if self.view.update(answer):
                self._nodes.metadata_came()
                for callback in list(self.on_update):
                    callback()
                return
            failures += 1
            self._nodes.avoid(connection)
            if loop.time() >= deadline:
                raise RequestTimedOutError(
                    f"all answers within {self._patience_ms} ms were older than what is known "
                    "already; brokers are cut off from their controller"
                )
            await asyncio.sleep(self._pause_s(failures))

    async def _metadata(
        self, request: MetadataRequest
    ) -> tuple[MetadataResponse, BrokerConnection]:
        connection = await self.connection(ANY)
        version = connection.versions.choose(request.API_KEY, at_least=4)
        answer = await self._answer(connection, request, version)
        assert isinstance(answer, MetadataResponse)
        if answer.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._nodes.rebootstrap()
        raise_for(answer.error_code)
        return answer, connection

    def watch_topics(self, topics: Iterable[str] | None) -> None:
        """The topics (None: all) whose metadata is fetched anew every metadata.max.age.ms, and by
        want_refresh; in place of those named before.
        """
        self._watched = None if topics is None else frozenset(topics)
        self._begin_refreshing()

    def want_refresh(self) -> None:
        """Have the metadata of the watched topics fetched soon, in the background; wishes that come
        together count once.
        """
        self._wanted.set()
        self._begin_refreshing()

    def _begin_refreshing(self) -> None:
        if self._refresher is None and not self._is_closed:
            self._refresher = self._own_loop().create_task(self._keep_fresh())

    async def _keep_fresh(self) -> None:
        max_age_ms = self.settings["metadata.max.age.ms"]
        failures = 0
        while True:
            if not failures:
                try:
                    async with asyncio.timeout(refresh_age_ms(max_age_ms, random.random()) / 1000):
                        await self._wanted.wait()
                except TimeoutError:
                    pass
            # The pause lets wishes gather, and spaces the requests of one that never gets enough.
            await asyncio.sleep(self._pause_s(max(failures, 1)))
            self._wanted.clear()
            try:
                await self.refresh(self._watched)
                failures = 0
            except KafkaError:
                failures += 1

    # ---- coordinators ----

    async def coordinator(self, kind: int, key: str) -> int:
        """The node id of a group's (GROUP) or a transactional id's (TRANSACTION) coordinator; kept
        until it is forgotten. Raises the broker's error.
        """
        found = self._coordinators.get((kind, key))
        if found is not None and found in self.view.brokers:
            return found
        connection = await self.connection(ANY)
        version = connection.versions.choose(FindCoordinatorRequest.API_KEY)
        request = FindCoordinatorRequest(key_type=kind)
        if version >= FIND_MANY:
            request.coordinator_keys = [key]
        else:
            request.key = key
        answer = await self._answer(connection, request, version)
        assert isinstance(answer, FindCoordinatorResponse)
        row = answer.coordinators[0] if version >= FIND_MANY and answer.coordinators else answer
        if row.error_code:
            raise error_for(row.error_code, row.error_message or None)
        self.view.hear_broker(Broker(row.node_id, row.host, row.port))
        self._coordinators[kind, key] = row.node_id
        return row.node_id

    def forget_coordinator(self, kind: int, key: str) -> None:
        """Look the coordinator up anew when it is needed next: after NOT_COORDINATOR, say."""
        self._coordinators.pop((kind, key), None)
