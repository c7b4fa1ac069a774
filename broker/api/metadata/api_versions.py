"""ApiVersions, versions 0 to 4 (KIP-35, KIP-511, KIP-584): exactly the rows of the table, and the
features, Kafka's and kstore's own, whose APIs are among them.

A version newer than ours is answered in version 0 with UNSUPPORTED_VERSION and its own row, so that
the client can ask again.
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
"""Older clients take a feature's minimum of 0 for an error, so Kafka does not show them those."""
SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?\Z")


class HasFeatures(Protocol):
    """What a handler is given that asks for features."""

    @property
    def features(self) -> Lazy[FinalizedFeatures]:
        """The cluster's finalized feature levels."""


def handle_api_versions(
    broker: HasFeatures, request: ApiVersionsRequest, ctx: RequestContext
) -> ApiVersionsResponse:
    """List the APIs; INVALID_REQUEST for a client software name that is none."""
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
    """The answer to a version that we do not know, encoded in version 0: as Kafka's, it lists
    this API alone.
    """
    rows = [row for row in _rows() if row.api_key == ApiVersionsRequest.API_KEY]
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=rows).encode(0)


# Kafka lists Produce from 0 and serves it from 3 (KAFKA-18659), and so do we: librdkafka before 2.1
# takes a broker without Produce 2 for one that cannot store compressed batches, and then sends
# them uncompressed without a word.
LISTED_FROM = {0: 0}


FIRST_OWN_KEY = 25300
"""From here on an API is kstore's own. A feature tells of it: a client may keep the keys that it is
listed in an array.
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
