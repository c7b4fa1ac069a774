"""DescribeAcls, CreateAcls and DeleteAcls. Types and operations are Kafka's numbers."""

from __future__ import annotations

from kstore.protocol.schema import (
    Int8,
    Int16,
    Int32,
    Message,
    String,
    Struct,
    field,
)

__all__ = [
    "AclCreation",
    "AclCreationResult",
    "AclDescription",
    "CreateAclsRequest",
    "CreateAclsResponse",
    "DeleteAclsFilter",
    "DeleteAclsFilterResult",
    "DeleteAclsMatchingAcl",
    "DeleteAclsRequest",
    "DeleteAclsResponse",
    "DescribeAclsRequest",
    "DescribeAclsResource",
    "DescribeAclsResponse",
]


class DescribeAclsRequest(Message, api_key=29, versions="1-3", flexible="2+"):
    """Asks for the ACLs that match a filter."""

    resource_type_filter: Int8 = field("0+", default=0)
    resource_name_filter: String | None = field("0+", default="", nullable="0+")
    pattern_type_filter: Int8 = field("1+", default=3)
    principal_filter: String | None = field("0+", default="", nullable="0+")
    host_filter: String | None = field("0+", default="", nullable="0+")
    operation: Int8 = field("0+", default=0)
    permission_type: Int8 = field("0+", default=0)


class AclDescription(Struct):
    """One entry of `acls` in DescribeAclsResource."""

    principal: String = field("0+", default="")
    host: String = field("0+", default="")
    operation: Int8 = field("0+", default=0)
    permission_type: Int8 = field("0+", default=0)


class DescribeAclsResource(Struct):
    """One entry of `resources` in DescribeAclsResponse."""

    resource_type: Int8 = field("0+", default=0)
    resource_name: String = field("0+", default="")
    pattern_type: Int8 = field("1+", default=3)
    acls: list[AclDescription] = field("0+", default=[])


class DescribeAclsResponse(Message, api_key=29, versions="1-3", flexible="2+"):
    """The answer to DescribeAclsRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default="", nullable="0+")
    resources: list[DescribeAclsResource] = field("0+", default=[])


class AclCreation(Struct):
    """One entry of `creations` in CreateAclsRequest."""

    resource_type: Int8 = field("0+", default=0)
    resource_name: String = field("0+", default="")
    resource_pattern_type: Int8 = field("1+", default=3)
    principal: String = field("0+", default="")
    host: String = field("0+", default="")
    operation: Int8 = field("0+", default=0)
    permission_type: Int8 = field("0+", default=0)


class CreateAclsRequest(Message, api_key=30, versions="1-3", flexible="2+"):
    """Creates ACLs."""

    creations: list[AclCreation] = field("0+", default=[])


class AclCreationResult(Struct):
    """One entry of `results` in CreateAclsResponse."""

    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default="", nullable="0+")


class CreateAclsResponse(Message, api_key=30, versions="1-3", flexible="2+"):
    """The answer to CreateAclsRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    results: list[AclCreationResult] = field("0+", default=[])


class DeleteAclsFilter(Struct):
    """One entry of `filters` in DeleteAclsRequest."""

    resource_type_filter: Int8 = field("0+", default=0)
    resource_name_filter: String | None = field("0+", default="", nullable="0+")
    pattern_type_filter: Int8 = field("1+", default=3)
    principal_filter: String | None = field("0+", default="", nullable="0+")
    host_filter: String | None = field("0+", default="", nullable="0+")
    operation: Int8 = field("0+", default=0)
    permission_type: Int8 = field("0+", default=0)


class DeleteAclsRequest(Message, api_key=31, versions="1-3", flexible="2+"):
    """Deletes the ACLs that match filters."""

    filters: list[DeleteAclsFilter] = field("0+", default=[])


class DeleteAclsMatchingAcl(Struct):
    """One entry of `matching_acls` in DeleteAclsFilterResult."""

    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default="", nullable="0+")
    resource_type: Int8 = field("0+", default=0)
    resource_name: String = field("0+", default="")
    pattern_type: Int8 = field("1+", default=3)
    principal: String = field("0+", default="")
    host: String = field("0+", default="")
    operation: Int8 = field("0+", default=0)
    permission_type: Int8 = field("0+", default=0)


class DeleteAclsFilterResult(Struct):
    """One entry of `filter_results` in DeleteAclsResponse."""

    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("0+", default="", nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = field("0+", default=[])


class DeleteAclsResponse(Message, api_key=31, versions="1-3", flexible="2+"):
    """The answer to DeleteAclsRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    filter_results: list[DeleteAclsFilterResult] = field("0+", default=[])
