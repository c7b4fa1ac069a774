"""One connection to a broker: requests are sent in the order of the calls, responses arrive in the
same order.

`open_connection` (opening.py) creates one. cluster.py decides which broker to ask, and handles
errors.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, cast

from kstore._fast.clients.answer_reader import AnswerReader
from kstore.clients.core.versions import BrokerVersions
from kstore.errors import (
    ErrorCode,
    KafkaError,
    NetworkError,
    ProtocolError,
    RequestTimedOutError,
    error_for,
)
from kstore.other_protocols import other_protocol
from kstore.protocol.metadata.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kstore.protocol.registry import API_VERSIONS, APIS, decode_response, request_pieces
from kstore.protocol.schema import Message
from kstore.protocol.security.sasl import SaslAuthenticateRequest
from kstore.version import installed_version

if TYPE_CHECKING:
    from kstore.net.sasl_client import SaslClient
    from kstore.net.sasl_login import Login

__all__ = ["MAX_FRAME_BYTES", "BrokerConnection"]

MAX_FRAME_BYTES = 100 * 1024 * 1024
_RENEW_AFTER, _RENEW_JITTER = 0.85, 0.1
"""The fraction of a session's lifetime after which it is renewed, as in Kafka's clients."""


class _Expected(NamedTuple):
    """An outstanding request."""

    prefix: bytes
    request: type[Message]
    version: int
    sent: float
    deadline: float
    future: asyncio.Future[Message]


class _Held(NamedTuple):
    """A request that waits for the end of an authentication."""

    expected: _Expected | None
    pieces: list[bytes]


HINTS = {
    "TLS": "a listener with TLS needs a security.protocol of SSL or SASL_SSL",
    "HTTP": "it is the port of a web server (or of kstore's HTTP API); use a Kafka listener's",
}


class BrokerConnection(asyncio.BufferedProtocol):
    """An open connection. All calls are on its loop."""

    def __init__(
        self,
        address: str,
        node_id: int,
        client_id: str,
        *,
        request_timeout_ms: float,
        max_frame_bytes: int = MAX_FRAME_BYTES,
    ) -> None:
        self.address = address
        """host:port, for messages."""
        self.node_id = node_id
        """The broker's id, -1 if only its address is known."""
        self.versions = BrokerVersions(ApiVersionsResponse())
        """The broker's versions and features; empty until ApiVersions was answered."""
        self.is_lost = False
        self.last_used = 0.0
        """The loop's time of the last request or answer."""
        self.throttled_until = 0.0
        """The loop's time until which the broker asked for no more requests (KIP-219)."""
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._next_id = 0
        self._expected: deque[_Expected] = deque()
        self._held: list[_Held] | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._reader = AnswerReader(max_frame_bytes)
        self._has_tls = False
        self._responses = 0  # responses
        self._reason: KafkaError | None = None
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._gone = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    # ---- requests ----

    @property
    def in_flight(self) -> int:
        """The number of outstanding requests."""
        return len(self._expected) + len(self._held or ())

    @property
    def peer(self) -> tuple[str, int] | None:
        """The broker's IP address and port; None before the connection is made."""
        if self._transport is None:
            return None
        found = self._transport.get_extra_info("peername")
        return None if found is None else (found[0], found[1])

    def send(
        self, request: Message, version: int, *, answered: bool = True, extra_wait_ms: float = 0
    ) -> asyncio.Future[Message]:
        """Write a request, now or after an authentication in progress; its future gets the
        response, or NetworkError if the connection is lost.

        A response that takes longer than request.timeout.ms + extra_wait_ms closes the connection,
        because all others wait behind it: this request gets RequestTimedOutError. answered=False
        (Produce with acks 0): the future is done when the request is written. Raises ProtocolError
        for a request that the version can't express.
        """
        return self._send(request, version, answered, extra_wait_ms, is_held=self._held is not None)

    def _send(
        self,
        request: Message,
        version: int,
        answered: bool = True,
        extra_wait_ms: float = 0,
        *,
        is_held: bool = False,
    ) -> asyncio.Future[Message]:
        future: asyncio.Future[Message] = self._loop.create_future()
        if self.is_lost or self._transport is None:
            _fail(future, self._reason or NetworkError(f"not connected to {self.address}"))
            return future
        correlation_id = self._next_id
        pieces = request_pieces(request, version, correlation_id, self._client_id)
        self._next_id = (correlation_id + 1) & 0x7FFFFFFF
        now = self.last_used = self._loop.time()
        expected = None
        if answered:
            deadline = now + (self._request_timeout_ms + extra_wait_ms) / 1000
            prefix = correlation_id.to_bytes(4, "big")
            expected = _Expected(prefix, type(request), version, now, deadline, future)
        else:
            future.set_result(request)
        if is_held and self._held is not None:
            self._held.append(_Held(expected, pieces))
        else:
            self._write(expected, pieces)
        return future

    def _write(self, expected: _Expected | None, pieces: list[bytes]) -> None:
        assert self._transport is not None
        if expected is not None:
            self._expected.append(expected)
            if self._timer is None:
                self._timer = self._loop.call_at(expected.deadline, self._look_at_time)
        if len(pieces) == 1:
            self._transport.write(pieces[0])
        else:
            self._transport.writelines(pieces)

    async def drain(self) -> None:
        """Wait until most of the written data was sent, and until the broker accepts requests
        again; returns at once if nothing waits.
        """
        if self.throttled_until:
            await asyncio.sleep(self.throttled_until - self._loop.time())
            self.throttled_until = 0.0
        await self._writable.wait()

    def close(self, reason: KafkaError | None = None) -> None:
        """Close it; outstanding requests fail with the reason. Without a reason, written data is
        still sent.
        """
        self._lose(reason or NetworkError(f"the connection to {self.address} was closed"))
        if self._transport is None:
            self._gone.set()
        elif reason is None:
            self._transport.close()
        else:
            self._transport.abort()

    async def wait_closed(self, timeout_s: float) -> None:
        """After `close`: return when the socket is closed; close it by force if necessary."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._gone.wait()
        if self._transport is not None and not self._gone.is_set():
            self._transport.abort()

    async def agree(self) -> None:
        """Request the broker's versions: the first request of every connection."""
        request = ApiVersionsRequest(
            client_software_name="kstore", client_software_version=installed_version(),
            extension_fields=True,
        )  # fmt: skip
        answer = await self._ask_versions(request, APIS[API_VERSIONS].max_version)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            theirs = {row.api_key: row.max_version for row in answer.api_keys}
            answer = await self._ask_versions(request, max(theirs.get(API_VERSIONS, 0), 0))
        if answer.error_code:
            raise error_for(answer.error_code, f"{self.address} refuses ApiVersions")
        self.versions = BrokerVersions(answer)

    async def authenticate(self, client: SaslClient, login: Login) -> None:
        """Authenticate, after `agree`; call `login` again before the session expires (KIP-368).

        Raises SaslAuthenticationFailedError, UnsupportedSaslMechanismError or NetworkError.
        """
        from kstore.net.sasl_client import authenticate  # imported only if needed

        version = self.versions.choose(SaslAuthenticateRequest.API_KEY)
        # No other request may be sent between those of the exchange; earlier ones may still be
        # answered.
        self._held = []
        lifetime_ms = await authenticate(client, self._send, self.address, version=version)
        held, self._held = self._held, None
        for expected, pieces in held or ():
            self._write(expected, pieces)
        if lifetime_ms > 0:
            part = _RENEW_AFTER + random.random() * _RENEW_JITTER
            self._renewal = self._loop.create_task(self._renew(login, lifetime_ms * part / 1000))

    async def _renew(self, login: Login, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        try:
            await self.authenticate(await login.client(), login)
        except KafkaError as error:
            self.close(error)

    async def _ask_versions(self, request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
        version = min(version, APIS[API_VERSIONS].max_version)
        return cast(ApiVersionsResponse, await self.send(request, version))

    # ---- called by the transport ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected."""
        self._transport = cast(asyncio.Transport, transport)
        self._has_tls = transport.get_extra_info("sslcontext") is not None
        self.last_used = self._loop.time()

    def get_buffer(self, sizehint: int) -> AnswerReader | memoryview:
        """The buffer for the next bytes; asyncio's TLS takes slices of it."""
        return memoryview(self._reader) if self._has_tls else self._reader

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes were read."""
        first = b"" if self._responses else bytes(memoryview(self._reader)[: min(nbytes, 16)])
        try:
            for frame in self._reader.received(nbytes):
                self._take(frame)
        except ProtocolError as error:
            self.close(self._not_kafka(error, first))

    def eof_received(self) -> bool:
        """The broker has closed its side; the transport closes ours."""
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is closed."""
        self._gone.set()
        if self._responses == 1 and self._expected:
            text = (
                f"{self.address} closed the connection at the first request after ApiVersions, as "
                "listeners with SASL do to clients without; check this client's security.protocol"
            )
        elif self._responses:
            text = f"lost the connection to {self.address}: {error or 'the broker closed it'}"
        else:
            text = (
                f"{self.address} closed the connection without an answer ({error or 'no error'}); "
                "is it a Kafka listener, and does it take this client's security.protocol?"
            )
        self._lose(NetworkError(text))

    def pause_writing(self) -> None:
        """Too much data waits to be written."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Most of the waiting data was written."""
        self._writable.set()

    # ---- internals ----

    def _take(self, frame: bytes) -> None:
        self._responses += 1
        if not self._expected:
            raise ProtocolError("it sent a response, but no request is outstanding")
        prefix, request, version, _, _, future = self._expected.popleft()
        response = APIS[request.API_KEY].response
        try:
            if frame[:4] != prefix:
                raise ProtocolError("a response does not belong to the oldest request")
            if response is ApiVersionsResponse and _is_unsupported(frame):
                version = 0
            _, message = decode_response(frame, response, version)
        except ProtocolError as error:
            _fail(future, self._not_kafka(error, frame[:16]))
            raise
        self.last_used = self._loop.time()
        throttle_ms = getattr(message, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self.throttled_until = self.last_used + throttle_ms / 1000
        if not future.done():  # otherwise the caller has given up
            future.set_result(message)

    def _not_kafka(self, error: ProtocolError, begin: bytes) -> NetworkError:
        other = other_protocol(begin)
        if other is not None and not self.versions.offers(API_VERSIONS):
            return NetworkError(
                f"{self.address} answers with {other}, not with Kafka's protocol: {HINTS[other]}"
            )
        hint = "" if self.versions.offers(API_VERSIONS) else (
            "; check that this is the port of a Kafka listener, and its security.protocol"
        )  # fmt: skip
        return NetworkError(
            f"{self.address} sent a response that can't be read ({begin!r}): {error}{hint}"
        )

    def _look_at_time(self) -> None:
        """The response to the oldest request is due, or was when the timer was set."""
        self._timer = None
        if not self._expected:
            return
        oldest, now = self._expected[0], self._loop.time()
        if now < oldest.deadline:
            self._timer = self._loop.call_at(oldest.deadline, self._look_at_time)
            return
        for late in self._expected:
            if now >= late.deadline:
                wait_ms = (late.deadline - late.sent) * 1000
                what = f"{self.address} did not answer {late.request.__name__} in {wait_ms:.0f} ms"
                _fail(late.future, RequestTimedOutError(what))
        name = oldest.request.__name__
        self.close(NetworkError(f"{self.address} did not answer an earlier {name} in time"))

    def _lose(self, reason: KafkaError) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        self._reason = reason
        self._writable.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._renewal is not None and self._renewal is not asyncio.current_task(self._loop):
            self._renewal.cancel()
        while self._expected:
            _fail(self._expected.popleft().future, reason)
        held, self._held = self._held, None
        for each in held or ():
            if each.expected is not None:
                _fail(each.expected.future, reason)


def _fail(future: asyncio.Future[Message], reason: KafkaError) -> None:
    if not future.done():
        # One object each: a raised exception collects the frames of the tasks that await it.
        future.set_exception(type(reason)(reason.args[0]))
        future.exception()  # the caller may have gone; then this is no error to report


def _is_unsupported(frame: bytes) -> bool:
    """Whether a broker refuses the version of ApiVersions: it answers in version 0."""
    return frame[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
