"""The headers before requests and responses. _fast/framing splits frames."""

from __future__ import annotations

from kstore.protocol.schema import (
    Int16,
    Int32,
    Message,
    String,
    field,
)

__all__ = [
    "RequestHeader",
    "ResponseHeader",
]


class RequestHeader(Message, versions="1-2", flexible="2+"):
    """The header of every request; version 2 for the flexible versions of an API."""

    request_api_key: Int16 = field("0+", default=0)
    request_api_version: Int16 = field("0+", default=0)
    correlation_id: Int32 = field("0+", default=0)
    client_id: String | None = field("1+", default="", nullable="1+", flexible=False)


class ResponseHeader(Message, versions="0-1", flexible="1+"):
    """The header of every response; version 1 if flexible, except for ApiVersions."""

    correlation_id: Int32 = field("0+", default=0)
