"""DescribeConfigs and IncrementalAlterConfigs: configs of topics, brokers and groups."""

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
    "AlterConfigsResource",
    "AlterConfigsResourceResponse",
    "AlterableConfig",
    "DescribeConfigsRequest",
    "DescribeConfigsResource",
    "DescribeConfigsResourceResult",
    "DescribeConfigsResponse",
    "DescribeConfigsResult",
    "DescribeConfigsSynonym",
    "IncrementalAlterConfigsRequest",
    "IncrementalAlterConfigsResponse",
]


class DescribeConfigsResource(Struct):
    """One entry of `resources` in DescribeConfigsRequest."""

    resource_type: Int8 = field("0+", default=0)
    resource_name: String = field("0+", default="")
    configuration_keys: list[String] | None = field("0+", default=[], nullable="0+")


class DescribeConfigsRequest(Message, api_key=32, versions="1-4", flexible="4+"):
    """Asks for the configs of resources; null keys mean all."""

    resources: list[DescribeConfigsResource] = field("0+", default=[])
    include_synonyms: Bool = field("1+", default=False)
    include_documentation: Bool = field("3+", default=False)


class DescribeConfigsSynonym(Struct):
    """One entry of `synonyms` in DescribeConfigsResourceResult."""

    name: String = field("1+", default="")
    value: String | None = field("1+", default="", nullable="0+")
    source: Int8 = field("1+", default=0)


class DescribeConfigsResourceResult(Struct):
    """One entry of `configs` in DescribeConfigsResult."""

    name: String = field("0+", default="")
    value: String | None = field("0+", default="", nullable="0+")
    read_only: Bool = field("0+", default=False)
    config_source: Int8 = field("1+", default=-1, ignorable=True)
    is_sensitive: Bool = field("0+", default=False)
    synonyms: list[DescribeConfigsSynonym] = field("1+", default=[], ignorable=True)
    config_type: Int8 = field("3+", default=0, ignorable=True)
    documentation: String | None = field("3+", default="", nullable="0+", ignorable=True)


class DescribeConfigsResult(Struct):
    """One entry of `results` in DescribeConfigsResponse."""

    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default="", nullable="0+")
    resource_type: Int8 = field("0+", default=0)
    resource_name: String = field("0+", default="")
    configs: list[DescribeConfigsResourceResult] = field("0+", default=[])


class DescribeConfigsResponse(Message, api_key=32, versions="1-4", flexible="4+"):
    """The answer to DescribeConfigsRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    results: list[DescribeConfigsResult] = field("0+", default=[])


class AlterableConfig(Struct):
    """One entry of `configs` in AlterConfigsResource."""

    name: String = field("0+", default="")
    config_operation: Int8 = field("0+", default=0)
    value: String | None = field("0+", default="", nullable="0+")


class AlterConfigsResource(Struct):
    """One entry of `resources` in IncrementalAlterConfigsRequest."""

    resource_type: Int8 = field("0+", default=0)
    resource_name: String = field("0+", default="")
    configs: list[AlterableConfig] = field("0+", default=[])


class IncrementalAlterConfigsRequest(Message, api_key=44, versions="0-1", flexible="1+"):
    """Sets, deletes, appends to or subtracts from single configs (KIP-339)."""

    resources: list[AlterConfigsResource] = field("0+", default=[])
    validate_only: Bool = field("0+", default=False)


class AlterConfigsResourceResponse(Struct):
    """One entry of `responses` in IncrementalAlterConfigsResponse."""

    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default="", nullable="0+")
    resource_type: Int8 = field("0+", default=0)
    resource_name: String = field("0+", default="")


class IncrementalAlterConfigsResponse(Message, api_key=44, versions="0-1", flexible="1+"):
    """The answer to IncrementalAlterConfigsRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    responses: list[AlterConfigsResourceResponse] = field("0+", default=[])
