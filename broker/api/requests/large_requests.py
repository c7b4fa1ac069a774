"""Requests that are too large for one turn of the event loop. They are decoded in steps and
processed in pieces (splitting.py), and their responses are encoded in steps. Other connections are
served in between. As in Kafka, the next request of the connection waits.

The limit on the elements of a request's arrays is checked earlier. It limits the request's size in
memory.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Protocol

from kstore._fast.protocol.codec import Decoding
from kstore._fast.protocol.encoder import Encoding
from kstore.broker.api import API_TABLE, Handler, RequestContext
from kstore.broker.api.requests.error_responses import Rows
from kstore.broker.api.requests.splitting import (
    Joined,
    JoinedResponse,
    is_wide,
    pieces_of,
    rows_for,
)
from kstore.broker.api.requests.turns import GoneError, HasTurns, turn
from kstore.broker.runtime.slices import Room
from kstore.protocol.answered_errors import error_counts
from kstore.protocol.registry import APIS
from kstore.protocol.schema import Message

if TYPE_CHECKING:
    from kstore._fast.network.connection import Connection
    from kstore._fast.network.data_plane import DataPlane
    from kstore.broker.runtime.node import Node
    from kstore.config import BrokerConfig

__all__ = ["LargeRequestParts", "LargeRequests", "max_elements"]

STEP_ELEMENTS = 2000
"""Elements that are decoded or encoded in one turn."""
MUTED_FOR_WIDE = 2
"""Reason for `Connection.mute`: a wide request is being processed."""
MOST_BYTES = 4 << 20
"""The limit in bytes of wide requests that are processed at the same time. As objects they take 30
times as much memory. Further requests wait in order. Small requests have a separate limit.
"""
SMALL_BYTES = 64 * 1024
PEER_ELEMENTS = 2_000_000
"""Limit for requests of the controller, which may name every partition."""
METADATA = 3
END = object()


class LargeRequestParts(HasTurns, Protocol):
    """The parts of a broker that large requests use."""

    @property
    def node(self) -> Node:
        """The broker's settings."""

    @property
    def plane(self) -> DataPlane:
        """Counts errors."""


def max_elements(config: BrokerConfig, api_key: int) -> int:
    """Limit on the total elements of a request's arrays."""
    limit: int = config["kstore.request.max.elements"]
    if API_TABLE[api_key].internal:
        return max(limit, PEER_ELEMENTS)
    return limit


class LargeRequests:
    """All wide requests of a broker. They share the turns for such requests."""

    def __init__(self, broker: LargeRequestParts) -> None:
        """``broker`` is also passed to handlers."""
        self._broker = broker
        self._large, self._small = Room(MOST_BYTES), Room(MOST_BYTES)

    def is_divided(self, request: Message, version: int) -> bool:
        """Whether a decoded request has more rows than its handler takes at once. Requests whose
        responses the data plane caches are not divided.
        """
        rows = rows_for(request, version)
        return rows is not None and request.API_KEY != METADATA and is_wide(request, rows)

    def begin(
        self, handler: Handler, ctx: RequestContext, body: bytes, request: Any = None
    ) -> Awaitable[Encoding | bytes | None]:
        """Begin a request. Returns an awaitable of the encoded response, or of None for no
        response. ``request`` is given if it is already decoded. The connection waits from now on.
        """
        assert ctx.connection is not None
        room = self._small if len(body) <= SMALL_BYTES else self._large
        held = _Held(ctx.connection, room, len(body))
        return self._carry_out(handler, ctx, body, request, held)

    async def answer(self, handler: Handler, request: Message, ctx: RequestContext) -> Any:
        """The response to a decoded request. A request with many rows is processed in pieces."""
        if self.is_divided(request, ctx.api_version):
            rows = rows_for(request, ctx.api_version)
            assert rows is not None
            return await self._by_pieces(handler, request, rows, ctx)
        response = handler(self._broker, request, ctx)
        return self._counted(await response if isinstance(response, Awaitable) else response, ctx)

    def _counted(self, response: Any, ctx: RequestContext) -> Any:
        """Count the errors of a response."""
        if response is not None and (found := error_counts(response, ctx.api_version)):
            self._broker.plane.count_errors(ctx.api_key, found)
        return response

    async def _carry_out(
        self, handler: Handler, ctx: RequestContext, body: bytes, request: Any, held: _Held
    ) -> Encoding | bytes | None:
        try:
            await held.enter()
            if request is None:
                request = await self._decode(ctx, body)
            rows = rows_for(request, ctx.api_version)
            if rows is not None:
                response = await self._by_pieces(handler, request, rows, ctx)
            else:
                response = await self._whole(handler, request, ctx, held)
            if response is None:
                return None
            if self._broker.throttles is not None and ctx.connection is not None:
                self._broker.throttles.set_throttle_time(ctx.connection, response, is_late=True)
            return await self._encode(response, ctx)
        except GoneError:
            return None
        finally:
            held.release()

    async def _decode(self, ctx: RequestContext, body: bytes) -> Any:
        """Decode the request in steps. Raises ProtocolError if it is malformed or has too many
        elements.
        """
        plan = APIS[ctx.api_key].request.plan_for(ctx.api_version)
        decoding = Decoding(plan, body, max_elements(self._broker.node.config, ctx.api_key))
        while not await turn(self._broker, ctx, lambda: decoding.step(STEP_ELEMENTS)):
            pass
        return decoding.message

    async def _encode(self, response: Any, ctx: RequestContext) -> Encoding | bytes:
        if not isinstance(response, Message):
            encoded: bytes = response.encode(ctx.api_version)
            return encoded
        encoding = Encoding(response.plan_for(ctx.api_version), response)
        while not await turn(self._broker, ctx, lambda: encoding.step(STEP_ELEMENTS)):
            pass
        return encoding

    async def _whole(self, handler: Handler, request: Any, ctx: RequestContext, held: _Held) -> Any:
        response = await turn(self._broker, ctx, lambda: handler(self._broker, request, ctx))
        if isinstance(response, Awaitable):
            if API_TABLE[ctx.api_key].waits_for_members:
                held.release()  # later requests continue
            response = await response
        return self._counted(response, ctx)

    async def _by_pieces(
        self, handler: Handler, request: Any, rows: Rows, ctx: RequestContext
    ) -> Any:
        joined = JoinedResponse() if ctx.api_key == METADATA else Joined(rows, ctx.api_version)
        pieces = pieces_of(request, rows, ctx.api_version)

        def answer_next() -> Any:
            piece = next(pieces, END)
            return piece if piece is None or piece is END else handler(self._broker, piece, ctx)

        while (answer := await turn(self._broker, ctx, answer_next)) is not END:
            if isinstance(answer, Awaitable):
                answer = await answer
            if answer is not None and not joined.add(self._counted(answer, ctx)):
                break
        if joined.response is None:  # it has no rows
            answer = handler(self._broker, request, ctx)
            return self._counted(await answer if isinstance(answer, Awaitable) else answer, ctx)
        return joined.response


class _Held:
    """A connection whose next request waits, and the room that its wide request has reserved."""

    def __init__(self, connection: Connection, room: Room, size: int) -> None:
        self._connection: Connection | None = connection
        self._room = room
        self._size = size
        self._entered = False
        connection.mute(MUTED_FOR_WIDE)

    async def enter(self) -> None:
        """Wait until there is room for the decoded request."""
        await self._room.enter(self._size)
        self._entered = True

    def release(self) -> None:
        """Let this connection, and others that wait for room, continue."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.unmute(MUTED_FOR_WIDE)
        if self._entered:
            self._entered = False
            self._room.leave(self._size)
