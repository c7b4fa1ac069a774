"""DescribeGroups, ListGroups and DeleteGroups: the administration of groups."""

from __future__ import annotations

from kstore.protocol.schema import (
    Bool,
    Bytes,
    Int16,
    Int32,
    Message,
    String,
    Struct,
    field,
)

__all__ = [
    "DeletableGroupResult",
    "DeleteGroupsRequest",
    "DeleteGroupsResponse",
    "DescribeGroupsRequest",
    "DescribeGroupsResponse",
    "DescribedGroup",
    "DescribedGroupMember",
    "ListGroupsRequest",
    "ListGroupsResponse",
    "ListedGroup",
]


class DescribeGroupsRequest(Message, api_key=15, versions="0-6", flexible="5+"):
    """Asks for state and members of classic groups."""

    groups: list[String] = field("0+", default=[])
    include_authorized_operations: Bool = field("3+", default=False)


class DescribedGroupMember(Struct):
    """One entry of `members` in DescribedGroup."""

    member_id: String = field("0+", default="")
    group_instance_id: String | None = field("4+", default=None, nullable="4+", ignorable=True)
    client_id: String = field("0+", default="")
    client_host: String = field("0+", default="")
    member_metadata: Bytes = field("0+", default=b"")
    member_assignment: Bytes = field("0+", default=b"")


class DescribedGroup(Struct):
    """One entry of `groups` in DescribeGroupsResponse."""

    error_code: Int16 = field("0+", default=0)
    error_message: String | None = field("6+", default=None, nullable="6+")
    group_id: String = field("0+", default="")
    group_state: String = field("0+", default="")
    protocol_type: String = field("0+", default="")
    protocol_data: String = field("0+", default="")
    members: list[DescribedGroupMember] = field("0+", default=[])
    authorized_operations: Int32 = field("3+", default=-2147483648)


class DescribeGroupsResponse(Message, api_key=15, versions="0-6", flexible="5+"):
    """The answer to DescribeGroupsRequest."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    groups: list[DescribedGroup] = field("0+", default=[])


class ListGroupsRequest(Message, api_key=16, versions="0-5", flexible="3+"):
    """Lists the groups that a broker coordinates, by state (4+) and type (5+)."""

    states_filter: list[String] = field("4+", default=[])
    types_filter: list[String] = field("5+", default=[])


class ListedGroup(Struct):
    """One entry of `groups` in ListGroupsResponse."""

    group_id: String = field("0+", default="")
    protocol_type: String = field("0+", default="")
    group_state: String = field("4+", default="", ignorable=True)
    group_type: String = field("5+", default="", ignorable=True)


class ListGroupsResponse(Message, api_key=16, versions="0-5", flexible="3+"):
    """The answer to ListGroupsRequest."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field("0+", default=0)
    groups: list[ListedGroup] = field("0+", default=[])


class DeleteGroupsRequest(Message, api_key=42, versions="0-2", flexible="2+"):
    """Deletes empty groups with their offsets."""

    groups_names: list[String] = field("0+", default=[])


class DeletableGroupResult(Struct):
    """One entry of `results` in DeleteGroupsResponse."""

    group_id: String = field("0+", default="")
    error_code: Int16 = field("0+", default=0)


class DeleteGroupsResponse(Message, api_key=42, versions="0-2", flexible="2+"):
    """The answer to DeleteGroupsRequest."""

    throttle_time_ms: Int32 = field("0+", default=0)
    results: list[DeletableGroupResult] = field("0+", default=[])
