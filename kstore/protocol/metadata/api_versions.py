"""ApiVersions: the APIs of a broker, the first request on a connection. Versions before 3 have no
features, version 0 has no throttle time. The response's header always has version 0.
"""

from __future__ import annotations

from kstore.protocol.schema import (
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    field,
)

__all__ = [
    "ApiVersion",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "FinalizedFeatureKey",
    "SupportedFeatureKey",
]


class ApiVersionsRequest(Message, api_key=18, versions="0-4", flexible="3+"):
    """Asks for the APIs, versions and features of the broker; has the client's name from version 3
    on.
    """

    client_software_name: String = field("3+", default="", ignorable=True)
    client_software_version: String = field("3+", default="", ignorable=True)
    # kstore only: responses on this connection may have kstore's tagged fields.
    extension_fields: Bool = field("3+", default=False, tag=23202, ignorable=True)


class ApiVersion(Struct):
    """One entry of `api_keys` in ApiVersionsResponse."""

    api_key: Int16 = field("0+", default=0)
    min_version: Int16 = field("0+", default=0)
    max_version: Int16 = field("0+", default=0)


class SupportedFeatureKey(Struct):
    """One entry of `supported_features` in ApiVersionsResponse."""

    name: String = field("3+", default="")
    min_version: Int16 = field("3+", default=0)
    max_version: Int16 = field("3+", default=0)


class FinalizedFeatureKey(Struct):
    """One entry of `finalized_features` in ApiVersionsResponse."""

    name: String = field("3+", default="")
    max_version_level: Int16 = field("3+", default=0)
    min_version_level: Int16 = field("3+", default=0)


class ApiVersionsResponse(Message, api_key=18, versions="0-4", flexible="3+"):
    """The answer to ApiVersionsRequest."""

    error_code: Int16 = field("0+", default=0)
    api_keys: list[ApiVersion] = field("0+", default=[])
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = field("3+", default=[], tag=0, ignorable=True)
    finalized_features_epoch: Int64 = field("3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field("3+", default=[], tag=2, ignorable=True)
    zk_migration_ready: Bool = field("3+", default=False, tag=3, ignorable=True)
