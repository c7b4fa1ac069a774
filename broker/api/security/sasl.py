"""SaslHandshake 0-1 and SaslAuthenticate 0-2 on a connection that is already authenticated. They
renew a session (KIP-368). In all other cases the error is ILLEGAL_SASL_STATE, as in Kafka.

runtime/security/authentication.py authenticates new connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kstore.broker.api import RequestContext
from kstore.errors import ErrorCode
from kstore.protocol.security.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

if TYPE_CHECKING:
    from kstore.broker.runtime.security.security import Security

__all__ = ["HasSecurity", "handle_sasl_authenticate", "handle_sasl_handshake"]


class HasSecurity(Protocol):
    """The part of a broker that these handlers use."""

    @property
    def security(self) -> Security | None:
        """TLS and SASL. None if all listeners are PLAINTEXT."""


def handle_sasl_handshake(
    broker: HasSecurity, request: SaslHandshakeRequest, ctx: RequestContext
) -> SaslHandshakeResponse:
    """Renew a session that expires. An error for other sessions."""
    sasl = None if broker.security is None else broker.security.sasl
    if sasl is not None and ctx.connection is not None:
        session = sasl.of(ctx.connection)
        if session is not None:
            response = session.renew(request.mechanism, ctx.api_version)
            if response is not None:
                return response
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


def handle_sasl_authenticate(
    broker: HasSecurity, request: SaslAuthenticateRequest, ctx: RequestContext
) -> SaslAuthenticateResponse:
    """Answer after a completed authentication, or on a listener without one."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
