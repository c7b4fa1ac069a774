"""ApiVersions, versions 0 to 4 (KIP-35, KIP-511, KIP-584): exactly the rows of the table.

A version newer than ours is answered in version 0 with UNSUPPORTED_VERSION and the list, so that
the client can ask again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kstore.broker.api import API_TABLE, RequestContext
from kstore.errors import ErrorCode
from kstore.protocol.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from kstore.broker.runtime.broker import Broker

__all__ = ["handle_api_versions", "unsupported_version"]

SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?\Z")


def handle_api_versions(
    broker: Broker, request: ApiVersionsRequest, ctx: RequestContext
) -> ApiVersionsResponse:
    """List the APIs; INVALID_REQUEST for a client software name that is none."""
    if ctx.api_version >= 3 and not (
        SOFTWARE.match(request.client_software_name)
        and SOFTWARE.match(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(api_keys=_rows())


def unsupported_version(broker: Broker) -> bytes:
    """The answer to a version that we do not know, encoded in version 0."""
    response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_rows())
    return response.encode(0)


# Kafka lists Produce from 0 and serves it from 3 (KAFKA-18659), and so do we: librdkafka before 2.1
# takes a broker without Produce 2 for one that cannot store compressed batches, and then sends
# them uncompressed without a word.
LISTED_FROM = {0: 0}


def _rows() -> list[ApiVersion]:
    return [
        ApiVersion(
            api_key=key,
            min_version=LISTED_FROM.get(key, row.min_version),
            max_version=row.max_version,
        )
        for key, row in sorted(API_TABLE.items())
    ]
