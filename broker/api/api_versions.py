"""ApiVersions, versions 0 to 4 (KIP-35, KIP-511, KIP-584): exactly the rows of the table, and the
features, Kafka's and kstore's own, whose APIs are among them.

A version newer than ours is answered in version 0 with UNSUPPORTED_VERSION and the list, so that
the client can ask again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from kstore.broker.api import API_TABLE, RequestContext
from kstore.errors import ErrorCode
from kstore.protocol.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from kstore.broker.runtime.broker import Broker

__all__ = ["handle_api_versions", "unsupported_version"]

FIRST_FEATURES = 3
FIRST_ZERO_MINIMUM = 4
"""Older clients take a feature's minimum of 0 for an error, so Kafka does not show them those."""
FEATURES_EPOCH = 1


class Feature(NamedTuple):
    """A feature's range of versions, the one in force, and an API without which it is not there."""

    name: str
    min_version: int
    max_version: int
    finalized: int = 0
    """0 where it is none that the cluster agrees on."""
    needs_api: int = 18


FEATURES = (
    Feature("group.version", 0, 1, 1, needs_api=68),
    Feature("kraft.version", 0, 1),
    Feature("metadata.version", 7, 30, 30),
    Feature("share.version", 0, 1, 1, needs_api=76),
    Feature("streams.version", 0, 1, 1, needs_api=88),
    Feature("transaction.version", 0, 2, 2, needs_api=24),
    Feature("eligible.leader.replicas.version", 0, 1, 1),
    Feature("kstore.kip359", 1, 1),
    Feature("kstore.kip391", 1, 1),
)
"""Kafka 4.3.1's features in the order of its answer, then the extensions that a client may use."""

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
    response = ApiVersionsResponse(api_keys=_rows())
    if ctx.api_version >= FIRST_FEATURES:
        _add_features(response, ctx.api_version)
    return response


def _add_features(response: ApiVersionsResponse, version: int) -> None:
    served = [feature for feature in FEATURES if feature.needs_api in API_TABLE]
    response.supported_features = [
        SupportedFeatureKey(
            name=feature.name, min_version=feature.min_version, max_version=feature.max_version
        )
        for feature in served
        if feature.min_version > 0 or version >= FIRST_ZERO_MINIMUM
    ]
    response.finalized_features_epoch = FEATURES_EPOCH
    response.finalized_features = [
        FinalizedFeatureKey(
            name=feature.name,
            min_version_level=feature.finalized,
            max_version_level=feature.finalized,
        )
        for feature in served
        if feature.finalized
    ]


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
