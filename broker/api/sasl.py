"""SaslHandshake 0-1 and SaslAuthenticate 0-2 on a listener without SASL: ILLEGAL_SASL_STATE, as in
Kafka. Authentication itself is not here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.broker.api import RequestContext
from kstore.errors import ErrorCode
from kstore.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

if TYPE_CHECKING:
    from kstore.broker.runtime.broker import Broker

__all__ = ["handle_sasl_authenticate", "handle_sasl_handshake"]


def handle_sasl_handshake(
    broker: Broker, request: SaslHandshakeRequest, ctx: RequestContext
) -> SaslHandshakeResponse:
    """The listener speaks PLAINTEXT: there is nothing to shake hands about."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


def handle_sasl_authenticate(
    broker: Broker, request: SaslAuthenticateRequest, ctx: RequestContext
) -> SaslAuthenticateResponse:
    """As after an authentication that is over."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="This listener has no SASL; connect to it with PLAINTEXT.",
    )
