"""ApiVersions 0-4 (KIP-35, KIP-511, KIP-584): the rows of the table of APIs, and the features of
Kafka and kstore whose APIs are in it.

A request of a newer, unknown version gets a response in version 0, with UNSUPPORTED_VERSION and the
row of ApiVersions, so that the client can retry.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from kstore.broker.api import API_TABLE, RequestContext
from kstore.errors import ErrorCode
from kstore.protocol.metadata.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.metadata.features import FinalizedFeatures

__all__ = ["HasFeatures", "handle_api_versions", "unsupported_version"]

FIRST_FEATURES = 3
FIRST_ZERO_MINIMUM = 4
"""The first version whose responses list features with a minimum of 0. Older clients treat this as
an error, so Kafka does not send such features to them.
"""
SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?\Z")


class HasFeatures(Protocol):
    """The part of a broker that knows its features."""

    @property
    def features(self) -> Lazy[FinalizedFeatures]:
        """The cluster's finalized feature levels."""


def handle_api_versions(
    broker: HasFeatures, request: ApiVersionsRequest, ctx: RequestContext
) -> ApiVersionsResponse:
    """List the APIs. INVALID_REQUEST if the client's software name is malformed."""
    if ctx.api_version >= 3 and not (
        SOFTWARE.match(request.client_software_name)
        and SOFTWARE.match(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    response = ApiVersionsResponse(api_keys=_rows())
    if ctx.api_version >= FIRST_FEATURES:
        _add_features(response, broker, ctx.api_version)
    return response


def _add_features(response: ApiVersionsResponse, broker: HasFeatures, version: int) -> None:
    features = broker.features()
    levels = features.levels
    response.supported_features = [
        SupportedFeatureKey(
            name=feature.name, min_version=feature.min_level, max_version=feature.max_level
        )
        for feature in features.supported.values()
        if feature.min_level > 0 or version >= FIRST_ZERO_MINIMUM
    ]
    response.finalized_features_epoch = features.epoch
    response.finalized_features = [
        FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
        for name, level in levels.items()
        if level
    ]


def unsupported_version() -> bytes:
    """The encoded response to an unknown version, in version 0. As in Kafka, it lists only this
    API.
    """
    rows = [row for row in _rows() if row.api_key == ApiVersionsRequest.API_KEY]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=rows).encode(0)


# As in Kafka, Produce is listed from version 0 and served from version 3 (KAFKA-18659): librdkafka
# before 2.1 assumes that a broker without Produce 2 cannot store compressed batches, and silently
# sends them uncompressed.
LISTED_FROM = {0: 0}


FIRST_OWN_KEY = 25300
"""The first API key of kstore's extensions. A feature advertises them instead, because a client may
store the listed API keys in an array.
"""


def _rows() -> list[ApiVersion]:
    return [
        ApiVersion(
            api_key=key,
            min_version=LISTED_FROM.get(key, row.min_version),
            max_version=row.max_version,
        )
        for key, row in sorted(API_TABLE.items())
        if not row.internal and key < FIRST_OWN_KEY
    ]
