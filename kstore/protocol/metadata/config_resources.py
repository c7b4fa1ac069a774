"""AlterConfigs (which replaces all configs of a resource) and ListConfigResources (KIP-1142)."""

from __future__ import annotations

from kstore.protocol.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    String,
    Struct,
    field,
)

__all__ = [
    "AlterConfigsRequest",
    "AlterConfigsResource",
    "AlterConfigsResourceResponse",
    "AlterConfigsResponse",
    "AlterableConfig",
    "ConfigResource",
    "ListConfigResourcesRequest",
    "ListConfigResourcesResponse",
]


class AlterableConfig(Struct):
    """One entry of `configs` in AlterConfigsResource."""

    name: String = field("0+", default="")
    value: String | None = field("0+", default="", nullable="0+")


class AlterConfigsResource(Struct):
    """One entry of `resources` in AlterConfigsRequest."""

    resource_type: Int8 = field("0+", default=0)
    resource_name: String = field("0+", default="")
    configs: list[AlterableConfig] = field("0+", default=[])


class AlterConfigsRequest(Message, api_key=33, versions="0-2", flexible="2+"):
    """Replaces all configs of resources; use IncrementalAlterConfigs instead."""

    resources: list[AlterConfigsResource] = field("0+", default=[])
    validate_only: Bool = field("0+", default=False)


class AlterConfigsResourceResponse(Struct):
    """One entry of `responses` in AlterConfigsResponse."""

    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default="", nullable="0+")
    resource_type: Int8 = field("0+", default=0)
    resource_name: String = field("0+", default="")


class AlterConfigsResponse(Message, api_key=33, versions="0-2", flexible="2+"):
    """The answer to AlterConfigsRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    responses: list[AlterConfigsResourceResponse] = field("0+", default=[])


class ListConfigResourcesRequest(Message, api_key=74, versions="0-1", flexible="0+"):
    """Lists the resources that have configs, by type from version 1 on."""

    resource_types: list[Int8] = field("1+", default=[])


class ConfigResource(Struct):
    """One entry of `config_resources` in ListConfigResourcesResponse."""

    resource_name: String = field("0+", default="")
    resource_type: Int8 = field("1+", default=16, ignorable=True)


class ListConfigResourcesResponse(Message, api_key=74, versions="0-1", flexible="0+"):
    """The answer to ListConfigResourcesRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    config_resources: list[ConfigResource] = field("0+", default=[])
