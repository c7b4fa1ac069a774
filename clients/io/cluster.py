"""The cluster behind bootstrap servers, for asyncio: connections, current metadata, coordinators,
and retries.

All calls except the constructor are on one event loop. It does not know records or groups; the
clients do.
"""

from __future__ import annotations

import asyncio
import logging
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
from kstore.protocol.groups.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kstore.protocol.metadata.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from kstore.protocol.schema import Message

__all__ = ["ANY", "GROUP", "TRANSACTION", "ClusterClient"]

T = TypeVar("T")
GROUP, TRANSACTION = 0, 1
FIRST_PATIENCE_S = 2.0
"""When a broker has not sent metadata within this time, another one is asked; the time doubles with
each attempt.
"""
FIND_MANY = 4
"""The first version of FindCoordinator that takes several keys (KIP-699)."""


WAITING_S = 3.0
_waiting_log = logging.getLogger("kstore.clients.waiting")


class _Waiting:
    """Reports now and then what a long call waits for (INFO, "kstore.clients.waiting"; the command
    line shows it).
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, servers: str, deadline: float) -> None:
        self.last: KafkaError | None = None
        self.timer = loop.call_later(WAITING_S, self._warn)
        self._loop, self._servers, self._deadline = loop, servers, deadline
        self._pause_s = WAITING_S

    def _warn(self) -> None:
        left_s = max(self._deadline - self._loop.time(), 0)
        why = self.last or "no answer yet"
        _waiting_log.info("waiting for %s, for up to %.0f s more: %s", self._servers, left_s, why)
        self._pause_s *= 2
        self.timer = self._loop.call_later(self._pause_s, self._warn)


class ClusterClient:
    """Settings are those of `client_settings`. The loop is the running one of the first call,
    unless it is passed in.
    """

    def __init__(
        self, settings: Mapping[str, Any], *, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self.settings = settings
        self.view = ClusterView(settings["kstore.kip232.enable"])
        self.on_update: list[Callable[[], None]] = []
        """Called after each metadata response that was applied."""
        self._loop = loop
        self._nodes = Nodes(settings, self.view)
        self._coordinators: dict[tuple[int, str], int] = {}
        self._finders: dict[tuple[int, str], BrokerConnection] = {}
        self._shunned: dict[tuple[int, str], BrokerConnection] = {}
        """The broker that is not asked for a coordinator: its last answer was wrong."""
        self._asked: BrokerConnection | None = None  # last, for any request
        self._metadata_source: BrokerConnection | None = (
            None  # the broker that sent the current metadata
        )
        self._knows_brokers = True
        """Whether there are brokers to ask; False if the only known one was wrong."""
        self._watched: frozenset[str] | None = frozenset()
        self._wanted = asyncio.Event()
        self._refresher: asyncio.Task[None] | None = None
        self._is_closed = False

    # ---- requests ----

    async def connection(self, node_id: int, *, lane: str = "") -> BrokerConnection:
        """An open connection to the broker (ANY: to any).

        Responses on a connection arrive in the order of the requests, so requests that may wait
        long at the broker (Fetch, JoinGroup) use another lane: a connection of their own.

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
        """The response to a request in the newest version that both sides have within the bounds.

        Raises NetworkError, UnsupportedVersionError, or, after request.timeout.ms + extra_wait_ms,
        RequestTimedOutError. The connection is then closed, because later responses wait behind it.
        """
        connection = await self.connection(node_id, lane=lane)
        if node_id == ANY:
            self._asked = connection
        version = connection.versions.choose(request.API_KEY, at_least=at_least, at_most=at_most)
        await connection.drain()
        return await connection.send(request, version, extra_wait_ms=extra_wait_ms)

    def elsewhere(self) -> None:
        """If any broker can answer, do not ask the same broker again."""
        if self._asked is not None:
            self._nodes.avoid(self._asked)
            self._asked = None

    async def retrying(
        self, action: Callable[[], Awaitable[T]], timeout_ms: float, topics: Iterable[str] = ()
    ) -> T:
        """The result of action. It is repeated with growing pauses (retry.backoff.ms) while it
        raises retriable errors and time is left; then the last error is raised.

        Metadata of the topics, if any, is fetched again if the error requires it. An attempt is
        cancelled at the deadline.
        """
        loop = self._own_loop()
        deadline = loop.time() + timeout_ms / 1000
        names = list(topics)
        waiting = _Waiting(loop, ", ".join(self.settings["bootstrap.servers"]), deadline)
        try:
            return await self._retried(action, deadline, names, timeout_ms, waiting)
        finally:
            waiting.timer.cancel()

    async def _retried(
        self, action: Callable[[], Awaitable[T]], deadline: float, names: list[str],
        timeout_ms: float, waiting: _Waiting,
    ) -> T:  # fmt: skip
        loop = self._own_loop()
        last: KafkaError | None = None
        failures = 0
        while True:
            self._check()
            try:
                async with asyncio.timeout_at(deadline) as limit:
                    if last is not None and last.refresh_metadata and names:
                        self.doubt()
                        await self.refresh(names)
                    return await action()
            except KafkaError as error:
                if not error.retriable or self._is_closed:
                    raise
                last = waiting.last = error
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
        """Close the connections; outstanding requests fail with NetworkError."""
        self._is_closed = True
        refresher = self._refresher
        if refresher is not None and not refresher.done():
            refresher.cancel()
            await asyncio.wait([refresher])
        await self._nodes.close()

    @property
    def is_cut_off(self) -> bool:
        """Whether the last attempt reached no broker. Any thread may call it."""
        return self._nodes.is_cut_off

    # ---- metadata ----

    async def refresh(
        self,
        topics: Iterable[str] | None,
        *,
        create: bool = False,
        enough: Callable[[ClusterView], bool] | None = None,
    ) -> None:
        """Fetch metadata of topics (None: all) and of the brokers; with `create` the broker creates
        missing topics, if it is configured to. The view has the broker's errors for topics.

        A response that is older than the view (KIP-232) is ignored, and another one is requested,
        from another broker if there is one, for default.api.timeout.ms (a producer's max.block.ms);
        then it raises RequestTimedOutError. If the view is not `enough` afterwards (for example,
        older than a committed offset), the next call asks another broker. Also raises NetworkError.
        """
        names = None if topics is None else list(topics)
        rows = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=rows, allow_auto_topic_creation=create)
        loop = self._own_loop()
        deadline = loop.time() + self._patience_ms / 1000
        outdated = attempts = 0
        self._nodes.want_metadata()
        while True:
            connection = await self.connection(ANY)
            answer = await self._metadata(connection, request, FIRST_PATIENCE_S * 2**attempts)
            if answer is not None and self.view.update(answer):
                break
            attempts += 1
            self._nodes.avoid(connection)
            if loop.time() >= deadline:
                raise RequestTimedOutError(
                    f"no metadata within {self._patience_ms} ms; {outdated} answers were older "
                    "than what is known already: brokers may be cut off from their controller"
                )
            outdated += answer is not None
            if answer is not None or connection.is_lost:
                await asyncio.sleep(self._pause_s(attempts))
        self._metadata_source = connection
        self._knows_brokers = True
        self._nodes.metadata_came()
        if enough is not None and not enough(self.view):
            self._nodes.avoid(connection)
        for callback in list(self.on_update):
            callback()

    async def _metadata(
        self, connection: BrokerConnection, request: MetadataRequest, patience_s: float
    ) -> MetadataResponse | None:
        """The broker's response. None if it takes so long, or the connection was lost, that another
        broker should be asked.
        """
        version = connection.versions.choose(request.API_KEY, at_least=4)
        try:
            async with asyncio.timeout(patience_s):
                await connection.drain()
                answer = await connection.send(request, version)
        except (TimeoutError, RequestTimedOutError):
            return None
        except NetworkError:
            self._check()
            return None
        assert isinstance(answer, MetadataResponse)
        if answer.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._nodes.rebootstrap()
        raise_for(answer.error_code)
        return answer

    def watch_topics(self, topics: Iterable[str] | None) -> None:
        """The topics (None: all) whose metadata is fetched every metadata.max.age.ms, and by
        want_refresh; replaces the former ones.
        """
        self._watched = None if topics is None else frozenset(topics)
        self._begin_refreshing()

    def doubt(self) -> None:
        """A response contradicts the metadata: the next request for metadata asks another broker,
        if there is one. The one that sent it may be cut off from the controller.
        """
        if self._metadata_source is not None:
            self._nodes.avoid(self._metadata_source)
            self._metadata_source = None

    def want_refresh(self, *, doubts: bool = True) -> None:
        """Fetch the metadata of the watched topics soon, in the background; requests that come
        together count once. doubts: an error made the metadata doubtful.
        """
        if doubts:
            self.doubt()
        self._wanted.set()
        self._begin_refreshing()

    def _begin_refreshing(self) -> None:
        if self._refresher is None and not self._is_closed:
            self._refresher = self._own_loop().create_task(self._keep_fresh())
            self._refresher.add_done_callback(self._refresher_ended)

    async def _keep_fresh(self) -> None:
        max_age_ms = self.settings["metadata.max.age.ms"]
        loop = self._own_loop()
        failures = 0
        last = 0.0
        while True:
            if not failures:
                age_s = refresh_age_ms(max_age_ms, random.random()) / 1000
                try:
                    async with asyncio.timeout(age_s):
                        await self._wanted.wait()
                except TimeoutError:
                    self.doubt()  # a broker that is cut off would send the same metadata forever
            # Requests in quick succession count once.
            await asyncio.sleep(last + self._pause_s(max(failures, 1)) - loop.time())
            self._wanted.clear()
            last = loop.time()
            try:
                await self.refresh(self._watched)
                failures = 0
            except KafkaError:
                failures += 1

    def _refresher_ended(self, task: asyncio.Task[None]) -> None:
        """The task should not end, but a callback may raise, for example. The next request starts
        another one.
        """
        self._refresher = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._own_loop().call_exception_handler(
                {"message": "kstore: metadata refresh has stopped", "exception": error}
            )

    # ---- coordinators ----

    async def coordinator(self, kind: int, key: str) -> int:
        """The node id of the coordinator of a group (GROUP) or a transactional id (TRANSACTION);
        cached until it is forgotten. Raises the broker's error.
        """
        found = self._coordinators.get((kind, key))
        if found is not None and found in self.view.brokers:
            return found
        if not self._knows_brokers:
            await self.refresh([])
        if (kind, key) in self._shunned:  # metadata may have arrived meanwhile
            self._nodes.avoid(self._shunned[kind, key])
        connection = await self.connection(ANY)
        version = connection.versions.choose(FindCoordinatorRequest.API_KEY)
        request = FindCoordinatorRequest(key_type=kind)
        if version >= FIND_MANY:
            request.coordinator_keys = [key]
        else:
            request.key = key
        await connection.drain()
        answer = await connection.send(request, version)
        assert isinstance(answer, FindCoordinatorResponse)
        row = answer.coordinators[0] if version >= FIND_MANY and answer.coordinators else answer
        if row.error_code:
            self._shunned[kind, key] = connection
            self._knows_brokers = len(self.view.brokers) > 1
            raise error_for(row.error_code, row.error_message or None)
        self._shunned.pop((kind, key), None)
        self.view.update_broker(Broker(row.node_id, row.host, row.port))
        self._coordinators[kind, key] = row.node_id
        self._finders[kind, key] = connection
        return row.node_id

    def forget_coordinator(self, kind: int, key: str) -> None:
        """Look up the coordinator again when it is needed next, for example after NOT_COORDINATOR.
        Asks another broker than the one that named it, if there is one.
        """
        self._coordinators.pop((kind, key), None)
        finder = self._finders.pop((kind, key), None)
        if finder is not None:
            self._shunned[kind, key] = finder
            self._knows_brokers = len(self.view.brokers) > 1
