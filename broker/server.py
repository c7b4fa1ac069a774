"""The Python side of the data plane: admission of connections, and responses from Python handlers.

The message class decodes a request, the handler from the table of APIs (api/__init__.py) answers
it, and the response is encoded. A handler may answer later. Nothing here depends on a particular
API.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from kstore._fast.protocol.encoder import Encoding
from kstore.broker.api import (
    API_TABLE,
    FAST,
    ApiRow,
    Handler,
    RequestContext,
    resolve_handler,
)
from kstore.broker.api.requests.loading import FULL_DISK, IN_CLUSTER, WITH_AUTHORIZER, Loading
from kstore.broker.runtime.log_limit import WINDOW_S, LogLimit, group_of
from kstore.broker.runtime.log_lines import printable
from kstore.broker.runtime.quotas.connection_limits import ConnectionLimits
from kstore.broker.runtime.response_future import ResponseFuture
from kstore.broker.runtime.slices import Slices
from kstore.protocol import ProtocolError
from kstore.protocol.answered_errors import counting, error_counts
from kstore.protocol.registry import API_VERSIONS, APIS, Api
from kstore.protocol.schema import Message

if TYPE_CHECKING:
    from kstore._fast.broker.slots import Slot
    from kstore._fast.network.connection import Connection
    from kstore.broker.api.controller.parts import (
        EnvelopeParts,
        ForwardingParts,
        QuorumParts,
        ReplicaParts,
    )
    from kstore.broker.api.groups.parts import CoordinatorParts, StreamsParts
    from kstore.broker.api.logs.leader_epochs import EpochParts
    from kstore.broker.api.logs.list_offsets import OffsetParts
    from kstore.broker.api.logs.log_dirs import LogDirParts
    from kstore.broker.api.metadata.alter_configs import AlterConfigParts
    from kstore.broker.api.metadata.features import FeatureParts
    from kstore.broker.api.metadata.metadata import MetadataParts, TopicPartitionsParts
    from kstore.broker.api.quotas.client_quotas import QuotaParts
    from kstore.broker.api.requests.large_requests import LargeRequestParts, LargeRequests
    from kstore.broker.api.security.acls import AclParts
    from kstore.broker.api.security.permissions import GuardParts
    from kstore.broker.api.security.scram import ScramParts
    from kstore.broker.api.shares.leader_parts import ShareLeaderParts
    from kstore.broker.api.telemetry.client_metrics import TelemetryParts
    from kstore.broker.api.topics.delete_records import DeleteRecordsParts
    from kstore.broker.api.topics.topics import CreateTopicsParts
    from kstore.broker.api.transactions.parts import (
        AddPartitionsParts,
        ProducerIdParts,
        TransactionAdminParts,
        TransactionalOffsetsParts,
    )
    from kstore.broker.compose.broker import Broker
    from kstore.config import BrokerConfig
    from kstore.log import Log

__all__ = ["Later", "Server"]

if TYPE_CHECKING:

    class HandlerParts(
        AclParts, AddPartitionsParts, AlterConfigParts, CoordinatorParts, CreateTopicsParts,
        DeleteRecordsParts, EnvelopeParts, EpochParts, FeatureParts, ForwardingParts, GuardParts,
        LargeRequestParts, LogDirParts, MetadataParts, OffsetParts, ProducerIdParts, QuorumParts,
        QuotaParts, ReplicaParts, ScramParts, ShareLeaderParts, StreamsParts, TelemetryParts,
        TopicPartitionsParts, TransactionAdminParts, TransactionalOffsetsParts, Protocol,
    ):  # fmt: skip
        """All the parts of a broker that handlers use."""

    def _parts_of(broker: Broker) -> HandlerParts:
        """The broker, which has all of them."""
        return broker


log = logging.getLogger("kstore.broker")
MAX_LINES_OF_GROUP = 5
"""Limit of log lines about closed connections and failed requests in 10 s, for one listener and
reason.
"""
MAX_LINES = 50
"""The same for all listeners and reasons."""
AT_ONCE_BYTES = 8 * 1024
"""Up to this size a request is decoded in one step."""
NARROW_BYTES = 512
"""Up to this size a request is also processed in one step, since it has few rows."""
STEP_ELEMENTS = 2000
"""Elements of a late answer that are encoded in one turn of the loop."""
LARGE_ANSWER_BYTES = 256 * 1024
"""Bytes that are copied in one turn."""
CHECK_S = 0.001
"""How often a broker that stops looks whether groups have given all late answers."""
CHANGING = frozenset({3, 10, 38, 39, 40})
"""APIs, besides those of the controller, that may change the store: Metadata and FindCoordinator
create topics, and the others change delegation tokens.
"""
UNSUPPORTED = -1
"""The version that the data plane passes for an ApiVersions request of a version that kstore does
not support.
"""


class Server:
    """The Python side of all connections."""

    def __init__(self, config: BrokerConfig, loop: asyncio.AbstractEventLoop) -> None:
        self.broker: Broker
        self.call_soon = loop.call_soon
        self.call_later = loop.call_later
        self.add_writer = loop.add_writer
        self.remove_writer = loop.remove_writer
        self.stopping = False
        self._loop = loop
        self._lines = LogLimit(
            loop, self._report_rest, of_group=MAX_LINES_OF_GROUP, of_all=MAX_LINES
        )
        self._handlers: dict[int, tuple[Handler, Any, int]] = {}
        self._rows: Mapping[int, ApiRow] = API_TABLE
        self._placed = _in_cluster
        if not config.clustered:
            self._rows = {key: row for key, row in API_TABLE.items() if not row.internal}
            self._placed = _alone
        self._large: LargeRequests
        self._limits: ConnectionLimits
        self.loading = Loading(loop, self._rows, self._around)
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: set[Slot] = set()
        """Slots of late answers without a task."""

    def publish(self, broker: Broker) -> None:
        """Serve the table's rows on the broker's data plane."""
        self.broker = broker
        self._limits = ConnectionLimits(
            broker.node, broker.descriptors, broker.listener_settings, broker.quotas, self._refuse
        )
        for key, row in self._rows.items():
            api = APIS[key]
            broker.plane.serve_api(
                key,
                row.min_version,
                row.max_version,
                api.flexible_from,
                row.cached,
                row.in_turns,
            )

    @property
    def served_versions(self) -> Mapping[int, int]:
        """API key to the highest served version."""
        return {key: row.max_version for key, row in API_TABLE.items()}

    # ---- what the data plane calls ----

    def admit(self, connection: Connection) -> str | None:
        """The reason to refuse a new connection, or None."""
        if self.stopping:
            return "the broker is stopping"
        refusal = self._limits.arrived(connection)
        if refusal is None and self.broker.security is not None:
            refusal = self.broker.security.admit(connection)
        return refusal

    def lost(self, connection: Connection) -> None:
        """Called when a connection is closed."""
        if self.broker.security is not None:
            self.broker.security.lost(connection)
        if self.broker.share_partitions.made is not None:
            self.broker.share_partitions.made.lost(connection)
        self._limits.lost(connection)

    def report(self, sentence: str, about: str = "") -> None:
        """Report to the operator in one line, whatever text a client has sent. ``about``: lines
        with the same value are limited (Report).
        """
        if not about or self._lines.admits(group_of(about)):
            log.warning("%s", sentence if sentence.isprintable() else printable(sentence))

    def _report_rest(self, group: str, count: int) -> None:
        what = (
            f"{group}: {count:,} more such lines" if group else f"{count:,} more lines of clients"
        )
        self.report(f"{what} were left out in the last {WINDOW_S:g} s")

    def closing(self, connection: Connection, reason: str) -> None:
        """Report that a connection is closed, and why; the number of such lines is limited."""
        self.report(
            f"closing the connection {connection.peer}: {reason}",
            f"listener {connection.listener}: {reason}",
        )

    def _refuse(self, connection: Connection, reason: str) -> None:
        self.closing(connection, reason)
        connection.close()

    def failed(self, connection: Connection, problem: Exception) -> None:
        """Called when a request failed. A malformed request is an error of the client; every other
        failure is an error of the broker.
        """
        if isinstance(problem, ProtocolError):
            self.closing(connection, str(problem))
        elif self._lines.admits(f"listener {connection.listener}: a request failed"):
            log.error(
                "closing the connection %s: a request failed\n%s",
                connection.peer,
                _story(problem),
                extra={"problem": problem},  # for log handlers; exc_info would print it unescaped
            )

    def dispatch(
        self,
        connection: Connection,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: bytes | None,
        body: bytes,
    ) -> Any:
        """The response's body, None for no response, or the `Later` that `park` waits for."""
        # An unauthenticated client may only send ApiVersions, and gets its answer at once.
        if connection.authentication is None and self.loading.holds(connection, api_key):
            return None
        handler, api, most = self.handler(api_key)
        if version == UNSUPPORTED:
            from kstore.broker.api.metadata.api_versions import unsupported_version

            return unsupported_version()
        # librdkafka appends bytes to some requests; Kafka ignores them, too.
        ctx = self.context(connection, api_key, version, correlation_id, client_id)
        if len(body) > AT_ONCE_BYTES and connection.authentication is None:
            return Later(self._large.begin(handler, ctx, body), api, version, connection)
        request = api.request.decode(body, version, allow_trailing=True, max_elements=most)
        if len(body) > NARROW_BYTES and self._large.is_divided(request, version):
            return Later(self._large.begin(handler, ctx, body, request), api, version, connection)
        response = handler(self.broker, request, ctx)
        if response is None:
            return None
        if type(response) is ResponseFuture or isinstance(response, Awaitable):
            return Later(response, api, version, connection)
        if self.broker.throttles is not None and not API_TABLE[api_key].cached:
            self.broker.throttles.set_throttle_time(connection, response)
        self._count_at_once(api_key, response, version)
        return response.encode(version)

    def handler(self, api_key: int) -> tuple[Handler, Any, int]:
        """The handler of an API, the API, and the limit of elements of a request."""
        return self._handlers.get(api_key) or self._resolve(api_key)

    def context(
        self,
        connection: Connection,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: bytes | None,
    ) -> RequestContext:
        """The context of a request."""
        return RequestContext(
            api_key,
            version,
            correlation_id,
            None if client_id is None else client_id.decode("utf-8", "replace"),
            connection.client_host,
            connection.peer,
            connection.listener,
            connection.principal,
            connection,
        )

    def park(self, later: Later, slot: Slot) -> None:
        """Complete the slot when the response is available."""
        response = later.response
        if isinstance(response, ResponseFuture):
            if self.broker.throttles is None:
                self._waiting.add(slot)
                response.when_given(partial(self._given, later, slot))
                return
            later.response = _awaited(response)  # each of its steps is charged
        self._begin_answer(later, slot)

    def _begin_answer(self, later: Later, slot: Slot) -> None:
        task = self._loop.create_task(self._answer(later, slot), name=later.name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _given(self, later: Later, slot: Slot, response: Message | Exception) -> None:
        """Complete the slot with a late answer; a small one needs no task."""
        self._waiting.discard(slot)
        try:
            if isinstance(response, Exception):
                raise response
            encoding = self._encoding(later, response)
            if encoding.step(STEP_ELEMENTS) and encoding.size <= LARGE_ANSWER_BYTES:
                self._count_at_once(later.api_key, response, later.version)
                slot.complete(encoding.result())
            else:
                later.response = self._encoded(later, response, encoding)
                self._begin_answer(later, slot)
        except Exception as problem:  # noqa: BLE001 - it has lost its order
            self.failed(later.connection, problem)
            slot.give_up()

    def answer_when_durable(self, appended: list[tuple[Log, int]], slot: Slot, body: bytes) -> None:
        """Complete the slot when the records that it acknowledges are on the disk."""
        self.broker.commits.wait(
            appended, lambda done: slot.complete(body) if done else slot.give_up()
        )

    async def _answer(self, later: Later, slot: Slot) -> None:
        try:
            throttles = self.broker.throttles
            if throttles is None:
                response = await later.response
            else:
                response = await throttles.timed(later.connection, later.response)
            if isinstance(response, Message):
                encoding = self._encoding(later, response)
                response = await self._encoded(later, response, encoding)
            if isinstance(response, Encoding):
                if response.size > LARGE_ANSWER_BYTES:
                    await self._answer_large(response, later.connection, slot)
                    return
                response = response.result()
            elif response is not None and type(response) is not bytes:
                await self._count_errors(later, response)
                response = response.encode(later.version)
        except Exception as problem:  # noqa: BLE001 - it has lost its order
            self.failed(later.connection, problem)
            slot.give_up()
        else:
            slot.complete(response)

    def _encoding(self, later: Later, response: Message) -> Encoding:
        """The encoding of a late answer, and its throttle time in it."""
        if self.broker.throttles is not None:
            self.broker.throttles.set_throttle_time(later.connection, response, is_late=True)
        return Encoding(response.plan_for(later.version), response)

    async def _encoded(self, later: Later, response: Message, encoding: Encoding) -> Encoding:
        """The complete encoding; a large answer is counted and encoded in several turns."""
        if encoding.step(STEP_ELEMENTS):
            self._count_at_once(later.api_key, response, later.version)
            return encoding
        await self._count_errors(later, response)
        while not encoding.step(STEP_ELEMENTS):
            await self.broker.turns.next()
        return encoding

    def _count_at_once(self, api_key: int, response: Any, version: int) -> None:
        if found := error_counts(response, version):
            self.broker.plane.count_errors(api_key, found)

    async def _count_errors(self, later: Later, response: Any) -> None:
        if found := await Slices(self.broker.turns).do(counting(response, later.version)):
            self.broker.plane.count_errors(later.api_key, found)

    async def _answer_large(self, encoding: Encoding, connection: Connection, slot: Slot) -> None:
        """Copy a large response in several turns of the loop: copying more than a few MB at once
        would delay other connections.
        """
        buffer = slot.open_large(encoding.size)
        while not encoding.move(buffer, LARGE_ANSWER_BYTES):
            await self.broker.turns.next()
            if connection.is_closed:
                return
        slot.close_large()

    async def loaded(self, api_key: int) -> None:
        """Wait until an API's modules are loaded (RequestServer)."""
        await self.loading.wait(api_key)

    def _around(self, api_key: int) -> tuple[str, ...]:
        """The modules that this broker adds around an API's handler."""
        rights = () if self.broker.authorizer is None else WITH_AUTHORIZER
        if self.broker.config.clustered:
            return rights + IN_CLUSTER
        return rights + FULL_DISK if _changes_store(api_key, API_TABLE[api_key]) else rights

    def _resolve(self, api_key: int) -> tuple[Handler, Any, int]:
        from kstore.broker.api.requests.large_requests import LargeRequests, max_elements

        if not self._handlers:
            self._large = LargeRequests(self.broker)
        row = API_TABLE[api_key]
        if row.handler == FAST:
            raise AssertionError(f"API key {api_key} is answered by the data plane")
        handler = resolve_handler(row)
        if self.broker.authorizer is not None:
            from kstore.broker.api.security.permissions import guarded

            handler = guarded(api_key, handler)
        if row.internal:
            from kstore.broker.api.controller.between_brokers import between_brokers

            handler = between_brokers(handler)
        handler = self._placed(api_key, row, handler)
        most = max_elements(self.broker.config, api_key)
        found = self._handlers[api_key] = (handler, APIS[api_key], most)
        return found

    # ---- the end ----

    async def finish(self, timeout_s: float) -> None:
        """Answer as many of the requests in flight as possible within the timeout, then close all
        connections.
        """
        self.stopping = True
        self._lines.end_window()
        self.broker.plane.fetch.answer_parked()
        end = self._loop.time() + timeout_s
        while self._waiting and self._loop.time() < end:
            await asyncio.sleep(CHECK_S)
        tasks = list(self._tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=max(end - self._loop.time(), 0))
        for connection in self.broker.plane.open_connections():
            connection.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.sleep(0)


class Later:
    """A response that is not available or not encoded yet, and how to encode it."""

    __slots__ = ("api_key", "connection", "name", "response", "version")

    def __init__(
        self, response: Awaitable[Any], api: Api, version: int, connection: Connection
    ) -> None:
        self.response = response
        self.api_key, self.name = api.key, api.name
        self.version = version
        self.connection = connection


async def _awaited(answer: Awaitable[Message]) -> Message:
    return await answer


def connection_factory(broker: Broker, listener: str) -> Callable[[], Connection]:
    """Creates the protocol object of each connection that a listener accepts."""
    from kstore._fast.network.connection import Connection

    return lambda: Connection(broker.plane, listener)


def _changes_store(api_key: int, row: ApiRow) -> bool:
    return row.controller_only or row.shared_configs or api_key in CHANGING


def _alone(api_key: int, row: ApiRow, handler: Handler) -> Handler:
    """The handler of an API on a single broker."""
    if not _changes_store(api_key, row):
        return handler
    from kstore.broker.api.requests.failed_stores import with_store_errors

    return with_store_errors(handler)


def _in_cluster(api_key: int, row: ApiRow, handler: Handler) -> Handler:
    """The handler of an API in a cluster. It forwards requests for the controller. All requests
    wait until the broker has joined the cluster.
    """
    from kstore.broker.api.controller.forwarding import (
        configs_to_controller,
        to_controller,
        when_ready,
    )

    if row.controller_only:
        handler = to_controller(handler)
    elif row.shared_configs:
        handler = configs_to_controller(handler)
    return handler if row.internal or api_key == API_VERSIONS else when_ready(handler)


def _story(problem: Exception) -> str:
    """A traceback with a mark before each line, because the last line may contain text from a
    client.
    """
    from traceback import format_exception

    lines = "".join(format_exception(problem)).splitlines()
    return "\n".join(f"  | {printable(line)}" for line in lines)
