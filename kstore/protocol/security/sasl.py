"""SaslHandshake and SaslAuthenticate: the mechanism, then its messages."""

from __future__ import annotations

from kstore.protocol.schema import (
    Bytes,
    Int16,
    Int64,
    Message,
    String,
    field,
)

__all__ = [
    "SaslAuthenticateRequest",
    "SaslAuthenticateResponse",
    "SaslHandshakeRequest",
    "SaslHandshakeResponse",
]


class SaslHandshakeRequest(Message, api_key=17, versions="0-1"):
    """Names the SASL mechanism to use."""

    mechanism: String = field("0+", default="")


class SaslHandshakeResponse(Message, api_key=17, versions="0-1"):
    """The answer to SaslHandshakeRequest."""

    error_code: Int16 = field("0+", default=0)
    mechanisms: list[String] = field("0+", default=[])


class SaslAuthenticateRequest(Message, api_key=36, versions="0-2", flexible="2+"):
    """Contains the mechanism's next message; from version 1 on sessions may expire (KIP-368)."""

    auth_bytes: Bytes = field("0+", default=b"")


class SaslAuthenticateResponse(Message, api_key=36, versions="0-2", flexible="2+"):
    """The answer to SaslAuthenticateRequest."""

    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default="", nullable="0+")
    auth_bytes: Bytes = field("0+", default=b"")
    session_lifetime_ms: Int64 = field("1+", default=0, ignorable=True)
