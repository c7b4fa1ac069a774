"""Authenticates a connection to a listener with SASL. Before that, only ApiVersions, SaslHandshake
and SaslAuthenticate are allowed. The client must authenticate again before its session ends
(KIP-368).

kstore/net/sasl_server.py has the mechanisms, sasl_listeners.py has a listener's users and settings.
Clients get the same responses and errors, and are disconnected in the same cases, as in Kafka.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING

from kstore.broker.runtime.security.sasl_listeners import SaslListener
from kstore.errors import ErrorCode, ProtocolError
from kstore.net.sasl_server import Claim, SaslRefusedError, SaslServer
from kstore.protocol.headers import RequestHeader
from kstore.protocol.metadata.api_versions import ApiVersionsResponse
from kstore.protocol.registry import (
    APIS,
    decode_request,
    encode_response,
    request_header_version,
)
from kstore.protocol.security.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

if TYPE_CHECKING:
    import asyncio

    from kstore._fast.network.connection import Connection
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.metadata.listener_settings import ListenerSettings
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.security.authentication_counts import AuthenticationCounts, Outcome
    from kstore.broker.runtime.security.scram_users import ScramUsers
    from kstore.broker.runtime.security.unauthenticated import Unauthenticated

__all__ = ["Authentication", "Authentications"]

HANDSHAKE, VERSIONS, AUTHENTICATE = 17, 18, 36
NEWER_THAN_OURS = -1
MIN_RENEWAL_S = 1.0
Dispatch = Callable[["Connection", int, int, int, "bytes | None", bytes], bytes]


class Stage(Enum):
    """What a client may send next."""

    FIRST = "ApiVersions or SaslHandshake"
    HANDSHAKE = "SaslHandshake"
    TOKENS = "SaslAuthenticate, or bare tokens after SaslHandshake 0"
    OTHER_MECHANISM = "nothing: it reauthenticated with another mechanism"
    DONE = "any request"
    ENDED = "SaslHandshake, to renew its session"
    FAILED = "nothing"


class Authentications:
    """The authentications of one broker's connections. Raises ConfigError for invalid settings."""

    def __init__(
        self,
        node: Node,
        settings: ListenerSettings,
        scram: Lazy[ScramUsers],
        unauthenticated: Unauthenticated,
        counts: AuthenticationCounts,
        dispatch: Dispatch,
    ) -> None:
        """``dispatch`` answers an ApiVersions request."""
        self.loop = node.loop
        self.unauthenticated = unauthenticated
        self.counts = counts
        self.dispatch = dispatch
        self.report = node.report
        self.listeners = {
            each.name: SaslListener(node, settings, scram, each.name)
            for each in node.config.listeners
            if each.sasl
        }
        for listener in self.listeners.values():
            counts.begin(listener.name, listener.mechanisms)
        self._node = node
        self._sessions: dict[Connection, Authentication] = {}

    def close(self) -> None:
        """Called when the broker stops."""
        for listener in self.listeners.values():
            listener.close()

    def begin(self, connection: Connection) -> None:
        """Begin the authentication of a new connection, if its listener requires it."""
        listener = self.listeners.get(connection.listener)
        if listener is not None:
            listener.refresh()
            self._sessions[connection] = Authentication(self, listener, connection)

    def lost(self, connection: Connection) -> None:
        """Called when a connection was closed."""
        session = self._sessions.pop(connection, None)
        if session is not None:
            session.forget()

    async def end_changed(self, peer: tuple[str, str | None]) -> None:
        """Close the connections whose user has a new password or was deleted, except those of
        ``peer``: the inter-broker listener, and the user that brokers have there.
        """
        if not self._node.config["kstore.end.sessions.of.changed.users"]:
            return
        for listener in self.listeners.values():
            listener.refresh()
        anyone = next(iter(self.listeners.values()))
        requested = {claim for session in self._sessions.values() for claim in session.claims()}

        def read() -> dict[tuple[str, Claim], bytes | None]:
            return {claim: anyone.stored_key(*claim) for claim in requested}

        now = await self._node.run_blocking(read)
        for connection, session in list(self._sessions.items()):
            if (connection.listener, connection.principal.partition(":")[2]) != peer:
                session.end_if_changed(now)

    def of(self, connection: Connection) -> Authentication | None:
        """The authentication of a connection. None if it needs none."""
        return self._sessions.get(connection)


class Authentication:
    """The authentication of one connection, for its whole life."""

    def __init__(
        self, owner: Authentications, listener: SaslListener, connection: Connection
    ) -> None:
        self._owner = owner
        self._listener = listener
        self._connection = connection
        self._usual_frame_bytes = connection.max_frame_bytes
        self._stage = Stage.FIRST
        self._mechanism = ""
        self._server: SaslServer | None = None
        self._has_headers = False  # of Kafka's protocol around tokens
        self._renews = False
        self._renewed_at = -MIN_RENEWAL_S
        self._end: asyncio.TimerHandle | None = None  # of the session
        self._task: asyncio.Task[None] | None = None
        self._claim: Claim | None = None  # of the last SCRAM login
        self._changes = 0  # of the password, at the last PLAIN login
        self._take_frames()

    def forget(self) -> None:
        """Called when the connection was closed."""
        self._stage = Stage.FAILED
        self._owner.unauthenticated.remove(self)
        if self._end is not None:
            self._end.cancel()
        if self._task is not None:
            self._task.cancel()

    @property
    def by_token(self) -> bool:
        """Whether its last login was with a delegation token."""
        return self._claim is not None and self._claim.is_token

    def claims(self) -> list[tuple[str, Claim]]:
        """The SCRAM mechanism, and the user or token that has logged in with it or is about to."""
        running_claim = None if self._server is None else self._server.claim
        return [
            (self._mechanism, each) for each in (self._claim, running_claim) if each is not None
        ]

    def end_if_changed(self, now: Mapping[tuple[str, Claim], bytes | None]) -> None:
        """Close the connection if its user has a new password or none, or its token was deleted.
        ``now`` has the stored keys by mechanism and claim.
        """
        changed = any(each in now and now[each] != each[1].stored_key for each in self.claims())
        if self._mechanism == "PLAIN" and self._stage in (Stage.DONE, Stage.ENDED):
            user = self._connection.principal.partition(":")[2]
            changed |= self._listener.changes(user) != self._changes
        if changed and self._stage is not Stage.FAILED:
            self._stage = Stage.FAILED
            self._owner.unauthenticated.remove(self)
            self._report(
                f"{self._connection.principal} was deleted or has a new password, or its "
                "delegation token was removed (kstore.end.sessions.of.changed.users)"
            )
            self._connection.close()

    def receive(self, frame: bytes) -> None:
        """Process a request, or a bare token."""
        try:
            if self._stage is Stage.TOKENS:
                self._take_token(frame)
            elif self._stage is Stage.ENDED and int.from_bytes(frame[:2]) != HANDSHAKE:
                self._connection.close()  # as in Kafka, without a response
            elif self._stage is Stage.OTHER_MECHANISM:
                self._fail("it reauthenticates with another mechanism")
            elif self._stage is not Stage.FAILED:
                self._take_request(frame)
        except ProtocolError as problem:
            self._give_up(f"its request is malformed: {problem}")

    def renew(self, mechanism: str, version: int) -> SaslHandshakeResponse | None:
        """The response to a SaslHandshake in a session (KIP-368). None if there is nothing to
        renew, or the last renewal was just now.
        """
        now = self._owner.loop.time()
        if self._end is None or now < self._renewed_at + MIN_RENEWAL_S:
            return None
        self._begin_renewal(now)
        response = self._choose(mechanism, version)
        if self._stage is Stage.FIRST:
            self._fail(f"SASL mechanism {mechanism[:100]!r} is not enabled")
        return response

    def _take_frames(self) -> None:
        self._connection.authentication = self
        self._connection.max_frame_bytes = self._listener["sasl.server.max.receive.size"]
        self._owner.unauthenticated.add(self, self._give_up)

    def _begin_renewal(self, now: float) -> None:
        self._renewed_at = now
        self._renews = True
        self._stage = Stage.FIRST
        self._listener.refresh()
        self._take_frames()

    # ---- the handshake ----

    def _take_request(self, frame: bytes) -> None:
        key, version = _kind(frame)
        if self._stage is Stage.ENDED:
            self._begin_renewal(self._owner.loop.time())
        may_ask_versions = self._stage is Stage.FIRST and not self._renews
        if key == VERSIONS and may_ask_versions:
            self._note_software(frame, version)
        elif key == HANDSHAKE and version in (0, 1):
            header, request = decode_request(frame)
            mechanism: str = request.mechanism  # type: ignore[attr-defined]
            response = self._choose(mechanism, version)
            answer = encode_response(response, version, header.correlation_id)
            if response.error_code:
                self._fail(f"SASL mechanism {mechanism[:100]!r} is not enabled", answer)
            else:
                self._connection.send_frame(answer)
        else:
            self._give_up(f"it sends {_named(key, version)} instead of SaslHandshake")

    def _note_software(self, frame: bytes, version: int) -> None:
        """Answer ApiVersions. The client may send it again only after an error."""
        api = APIS[VERSIONS]
        header_version = request_header_version(VERSIONS, version)
        header, offset = RequestHeader.decode_prefix(frame, header_version)
        body = frame[offset:]
        known = api.min_version <= version <= api.max_version
        client_id = None if header.client_id is None else header.client_id.encode()
        answer = self._owner.dispatch(
            self._connection, VERSIONS, version if known else NEWER_THAN_OURS,
            header.correlation_id, client_id, body,
        )  # fmt: skip
        if known:
            self._connection.greet(body, version)
        if int.from_bytes(answer[:2]) == ErrorCode.NONE:
            self._stage = Stage.HANDSHAKE
        framed = header.correlation_id.to_bytes(4, signed=True) + answer
        self._connection.send_frame(len(framed).to_bytes(4) + framed)

    def _choose(self, mechanism: str, version: int) -> SaslHandshakeResponse:
        """Called when the client has chosen a mechanism. Returns the response."""
        enabled = self._listener.mechanisms
        response = SaslHandshakeResponse(mechanisms=enabled)
        if mechanism not in enabled:
            response.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        elif self._renews and mechanism != self._mechanism:
            self._stage = Stage.OTHER_MECHANISM
        else:
            self._mechanism = mechanism
            self._has_headers = version >= 1
            self._server = self._listener.server(mechanism)
            self._stage = Stage.TOKENS
        return response

    # ---- the tokens ----

    def _take_token(self, frame: bytes) -> None:
        version = correlation_id = -1
        token = frame
        if self._has_headers:
            key, version = _kind(frame)
            if key != AUTHENTICATE:
                self._fail(f"it sends {_named(key, version)}, not SaslAuthenticate",
                           _out_of_turn(frame, key, version))  # fmt: skip
                return
            if not 0 <= version <= APIS[AUTHENTICATE].max_version:
                self._give_up(f"it sends {_named(key, version)}, which is not served")
                return
            header, request = decode_request(frame)
            correlation_id = header.correlation_id
            token = bytes(request.auth_bytes)  # type: ignore[attr-defined]
        assert self._server is not None
        try:
            answer = self._listener.step(self._server, token)
        except SaslRefusedError as refusal:
            self._refuse(refusal, version, correlation_id)
            return
        if isinstance(answer, bytes):
            self._answer(answer, version, correlation_id)
        else:
            self._connection.mute()
            later = self._answer_later(answer, version, correlation_id)
            self._task = self._owner.loop.create_task(later)

    async def _answer_later(
        self, step: Awaitable[bytes], version: int, correlation_id: int
    ) -> None:
        try:
            answer = await step
        except SaslRefusedError as refusal:
            self._refuse(refusal, version, correlation_id)
        except Exception as problem:  # noqa: BLE001 - the store or the network, not the client
            self._fail(f"its identity could not be checked ({type(problem).__name__}: {problem})")
        else:
            self._answer(answer, version, correlation_id)
            if self._stage is not Stage.FAILED:
                self._connection.unmute()

    def _answer(self, token: bytes, version: int, correlation_id: int) -> None:
        server = self._server
        if self._stage is not Stage.TOKENS or server is None:
            return
        lifetime_ms: int | None = None
        if server.done:
            principal = f"User:{server.user}"
            before = self._connection.principal
            if self._renews and principal != before:
                names = ".".join(before.split(":", 1)), ".".join(principal.split(":", 1))
                words = "Cannot change principals during re-authentication from "
                client_message = words + ": ".join(names)
                self._refuse(SaslRefusedError(f"{before} can't become {principal}", client_message),
                             version, correlation_id)  # fmt: skip
                return
            lifetime_ms = self._lifetime_ms(server)
        response = SaslAuthenticateResponse(auth_bytes=token, session_lifetime_ms=lifetime_ms or 0)
        if self._has_headers:
            self._connection.send_frame(encode_response(response, version, correlation_id))
        else:
            self._connection.send_frame(len(token).to_bytes(4) + token)
        if server.done:
            self._complete(server, lifetime_ms)

    def _lifetime_ms(self, server: SaslServer) -> int | None:
        """How long the session lasts. None: as long as the connection."""
        bounds = []
        if self._listener.max_session_ms(self._mechanism) > 0:
            bounds.append(self._listener.max_session_ms(self._mechanism))
        if server.expires_at_ms is not None:
            bounds.append(server.expires_at_ms - time.time_ns() // 1_000_000)
        return max(min(bounds), 0) if bounds else None

    def _complete(self, server: SaslServer, lifetime_ms: int | None) -> None:
        self._stage = Stage.DONE
        self._server = None
        self._claim = server.claim
        self._changes = self._listener.changes(server.user)
        self._count("successful")
        self._owner.unauthenticated.remove(self)
        self._connection.principal = f"User:{server.user}"
        self._connection.max_frame_bytes = self._usual_frame_bytes
        self._connection.authentication = None
        if self._end is not None:
            self._end.cancel()
            self._end = None
        if lifetime_ms is not None:
            self._end = self._owner.loop.call_later(lifetime_ms / 1000, self._session_ends)

    def _session_ends(self) -> None:
        """The session has ended. The client may now only renew it; a renewal in progress
        continues.
        """
        if self._stage is Stage.DONE:
            self._stage = Stage.ENDED
            self._connection.authentication = self
            self._connection.end_waits()

    # ---- the end ----

    def _refuse(self, refusal: SaslRefusedError, version: int, correlation_id: int) -> None:
        if not self._has_headers:
            self._fail(str(refusal))
            return
        what = "re-authentication" if self._renews else "authentication"
        client_message = refusal.client_message or (
            f"Authentication failed during {what} due to invalid credentials with SASL mechanism "
            f"{self._mechanism}"
        )
        response = SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=client_message
        )
        self._fail(str(refusal), encode_response(response, version, correlation_id))

    def _fail(self, reason: str, answer: bytes = b"") -> None:
        """Close the connection. As in Kafka the response is delayed, so that guessing passwords
        takes time.
        """
        if self._stage is Stage.FAILED:
            return
        self._stage = Stage.FAILED
        self._count("failed")
        self._owner.unauthenticated.remove(self)
        self._connection.mute()
        self._report(f"authentication failed: {reason}")
        delay_ms = self._listener["connection.failed.authentication.delay.ms"]
        if delay_ms:
            self._owner.loop.call_later(delay_ms / 1000, self._part, answer)
        else:
            self._part(answer)

    def _part(self, answer: bytes) -> None:
        if answer:
            self._connection.send_frame(answer)
        self._connection.close()

    def _give_up(self, reason: str) -> None:
        """Close the connection at once, because the client sent something other than an
        authentication, or nothing.
        """
        self._stage = Stage.FAILED
        self._count("failed")
        self._owner.unauthenticated.remove(self)
        self._report(reason)
        self._connection.close()

    def _count(self, outcome: Outcome) -> None:
        self._owner.counts.add(outcome, self._listener.name, self._mechanism, again=self._renews)

    def _report(self, reason: str) -> None:
        self._owner.report(
            f"closing the connection {self._connection.peer}: {reason}",
            f"listener {self._listener.name}: {reason}",
        )


def _out_of_turn(frame: bytes, key: int, version: int) -> bytes:
    """The response to a request that is not allowed before authentication. Such a request is not
    decoded.
    """
    response: SaslHandshakeResponse | ApiVersionsResponse
    if key == HANDSHAKE:
        response = SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    elif key == VERSIONS:
        response = ApiVersionsResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    else:
        return b""
    if not APIS[key].min_version <= version <= APIS[key].max_version or len(frame) < 8:
        return b""
    return encode_response(response, version, int.from_bytes(frame[4:8], signed=True))


def _named(key: int, version: int) -> str:
    return f"{APIS[key].name if key in APIS else f'a request with the key {key}'} {version}"


def _kind(frame: bytes) -> tuple[int, int]:
    """API key and version of a request."""
    if len(frame) < 4:
        raise ProtocolError(f"{len(frame)} bytes are not a request")
    return int.from_bytes(frame[:2], signed=True), int.from_bytes(frame[2:4], signed=True)
