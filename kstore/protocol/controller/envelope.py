"""Envelope (KIP-590): a client's request that a broker forwards to the controller, with the
client's principal and address. Only between brokers.
"""

from __future__ import annotations

from kstore.protocol.schema import Bytes, Int16, Message, field

__all__ = ["EnvelopeRequest", "EnvelopeResponse"]


class EnvelopeRequest(Message, api_key=58, versions="0", flexible="0+"):
    """A request with its header, unchanged."""

    request_data: Bytes = field("0+", default=b"")
    request_principal: Bytes | None = field("0+", default=b"", nullable="0+")
    client_host_address: Bytes = field("0+", default=b"")


class EnvelopeResponse(Message, api_key=58, versions="0", flexible="0+"):
    """The response with its header, or the error."""

    response_data: Bytes | None = field("0+", default=None, nullable="0+")
    error_code: Int16 = field("0+", default=0)
