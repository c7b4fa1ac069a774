"""Envelope (KIP-590): a client's request that one broker hands on to the controller, with who sent
it and from where. Between brokers only.
"""

from __future__ import annotations

from kstore.protocol.schema import Bytes, Int16, Message, field

__all__ = ["EnvelopeRequest", "EnvelopeResponse"]


class EnvelopeRequest(Message, api_key=58, versions="0", flexible="0+"):
    """A request with its header, as it came."""

    request_data: Bytes = field("0+", default=b"")
    request_principal: Bytes | None = field("0+", default=b"", nullable="0+")
    client_host_address: Bytes = field("0+", default=b"")


class EnvelopeResponse(Message, api_key=58, versions="0", flexible="0+"):
    """The answer with its header, or why there is none."""

    response_data: Bytes | None = field("0+", default=None, nullable="0+")
    error_code: Int16 = field("0+", default=0)
