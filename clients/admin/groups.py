"""Groups: list, describe, delete, and the removal of members."""

from __future__ import annotations

from typing import NamedTuple

from kstore.clients.admin.group_types import (
    GroupDescription,
    GroupListing,
    classic_group,
    consumer_group,
    share_group,
    streams_group,
)
from kstore.clients.admin.routing import AdminBase, Coordinator, Results, item_error
from kstore.clients.io.cluster import GROUP
from kstore.errors import (
    ErrorCode,
    GroupIdNotFoundError,
    KafkaError,
    UnsupportedVersionError,
)
from kstore.items import Items, items_of
from kstore.protocol.groups.classic import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kstore.protocol.groups.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from kstore.protocol.groups.group_admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kstore.protocol.groups.streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from kstore.protocol.shares.describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

__all__ = ["GroupMember", "GroupsAdmin"]

Described = dict[str, "GroupDescription | KafkaError"]


class GroupMember(NamedTuple):
    """A member to remove: a static member by its instance id, any other member by its member id."""

    member_id: str = ""
    group_instance_id: str | None = None


class GroupsAdmin(AdminBase):
    """Requests about groups."""

    async def list_groups(
        self, *, states: Items[str] = (), types: Items[str] = ()
    ) -> list[GroupListing]:
        """The groups of all coordinators, sorted by id. `states` and `types` select some of
        them.
        """
        states = items_of("states", states, str, "group states")
        types = items_of("types", types, str, "group types")
        at_least = 5 if types else 4 if states else 0

        async def ask(node_id: int) -> list[GroupListing] | KafkaError:
            request = ListGroupsRequest(states_filter=states, types_filter=types)
            answer = await self._ask(node_id, request, ListGroupsResponse, at_least=at_least)
            return item_error(f"groups of broker {node_id}", answer.error_code) or [
                GroupListing(
                    row.group_id, row.group_type.lower(), row.group_state, row.protocol_type
                )
                for row in answer.groups
            ]

        found = await self._every_broker(ask)
        rows = {row.group_id: row for part in found.values() for row in part}
        return [rows[group_id] for group_id in sorted(rows)]

    async def describe_groups(
        self,
        group_ids: Items[str],
        *,
        authorized_operations: bool = False,
        raise_errors: bool = True,
    ) -> Results[str, GroupDescription]:
        """The states and members of groups of any type. Raises GroupIdNotFoundError for a group
        that does not exist.
        """
        group_ids = items_of("group_ids", group_ids, str, "group ids")

        async def ask(node_id: int, wanted: list[str]) -> Described:
            found: Described = {}
            kinds = (
                self._consumer_groups, self._classic_groups, self._streams_groups,
                self._share_groups,
            )  # fmt: skip
            for describe in kinds:
                left = [each for each in wanted if _is_missing(found.get(each))]
                if not left:
                    break
                try:
                    answers = await describe(node_id, left, authorized_operations)
                except UnsupportedVersionError:
                    continue
                # "Not found" from the first type says little; a type that knows the group says
                # more.
                found |= {
                    each: answer
                    for each, answer in answers.items()
                    if each not in found or not _is_missing(answer)
                }
            return found

        route = Coordinator(self._cluster, GROUP)
        return await self._each(group_ids, route, ask, raise_errors=raise_errors)

    async def _consumer_groups(self, node_id: int, wanted: list[str], rights: bool) -> Described:
        request = ConsumerGroupDescribeRequest(
            group_ids=wanted, include_authorized_operations=rights
        )
        answer = await self._ask(node_id, request, ConsumerGroupDescribeResponse)
        return {
            row.group_id: item_error(_what(row.group_id), row.error_code)
            or consumer_group(row, node_id)
            for row in answer.groups
        }

    async def _classic_groups(self, node_id: int, wanted: list[str], rights: bool) -> Described:
        request = DescribeGroupsRequest(groups=wanted, include_authorized_operations=rights)
        at_least = 3 if rights else 0
        answer = await self._ask(node_id, request, DescribeGroupsResponse, at_least=at_least)
        found: Described = {}
        for row in answer.groups:
            code = row.error_code
            if code == ErrorCode.NONE and row.group_state == "Dead":
                code = ErrorCode.GROUP_ID_NOT_FOUND  # the answer of brokers before version 6
            error = item_error(_what(row.group_id), code)
            found[row.group_id] = error or classic_group(row, node_id)
        return found

    async def _streams_groups(self, node_id: int, wanted: list[str], rights: bool) -> Described:
        request = StreamsGroupDescribeRequest(
            group_ids=wanted, include_authorized_operations=rights
        )
        answer = await self._ask(node_id, request, StreamsGroupDescribeResponse)
        return {
            row.group_id: item_error(_what(row.group_id), row.error_code)
            or streams_group(row, node_id)
            for row in answer.groups
        }

    async def describe_share_groups(
        self,
        group_ids: Items[str],
        *,
        authorized_operations: bool = False,
        raise_errors: bool = True,
    ) -> Results[str, GroupDescription]:
        """The states and members of share groups. Raises GroupIdNotFoundError for any other
        group.
        """
        group_ids = items_of("group_ids", group_ids, str, "group ids")

        async def ask(node_id: int, wanted: list[str]) -> Described:
            return await self._share_groups(node_id, wanted, authorized_operations)

        route = Coordinator(self._cluster, GROUP)
        return await self._each(group_ids, route, ask, raise_errors=raise_errors)

    async def _share_groups(self, node_id: int, wanted: list[str], rights: bool) -> Described:
        request = ShareGroupDescribeRequest(group_ids=wanted, include_authorized_operations=rights)
        answer = await self._ask(node_id, request, ShareGroupDescribeResponse)
        return {
            row.group_id: item_error(_what(row.group_id), row.error_code)
            or share_group(row, node_id)
            for row in answer.groups
        }

    async def delete_groups(
        self, group_ids: Items[str], *, raise_errors: bool = True
    ) -> Results[str, None]:
        """Delete groups with their committed offsets. They must be empty."""
        group_ids = items_of("group_ids", group_ids, str, "group ids")

        async def ask(node_id: int, wanted: list[str]) -> dict[str, KafkaError | None]:
            request = DeleteGroupsRequest(groups_names=wanted)
            answer = await self._ask(node_id, request, DeleteGroupsResponse)
            return {
                row.group_id: item_error(_what(row.group_id), row.error_code)
                for row in answer.results
            }

        route = Coordinator(self._cluster, GROUP)
        return await self._each(group_ids, route, ask, raise_errors=raise_errors)

    async def remove_members(
        self,
        group_id: str,
        members: Items[GroupMember] | None = None,
        *,
        reason: str | None = None,
        raise_errors: bool = True,
    ) -> Results[GroupMember, None]:
        """Remove members of a group (None: all members). The other members rebalance (KIP-345)."""
        if members is None:
            group = (await self.describe_groups([group_id]))[group_id]
            members = [
                GroupMember("", member.group_instance_id)
                if member.group_instance_id
                else GroupMember(member.member_id)
                for member in group.members
            ]

        members = items_of("members", members, GroupMember, "GroupMember")

        async def ask(
            node_id: int, wanted: list[GroupMember]
        ) -> dict[GroupMember, KafkaError | None]:
            rows = [
                MemberIdentity(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    reason=reason,
                )
                for each in wanted
            ]
            request = LeaveGroupRequest(group_id=group_id, members=rows)
            answer = await self._ask(node_id, request, LeaveGroupResponse, at_least=3)
            whole = item_error(_what(group_id), answer.error_code)
            if whole is not None:
                return dict.fromkeys(wanted, whole)
            return {
                each: item_error(f"member {each.group_instance_id or each.member_id!r}", code)
                for each, code in zip(
                    wanted, (row.error_code for row in answer.members), strict=False
                )
            }

        route = Coordinator(self._cluster, GROUP, lambda member: group_id)
        return await self._each(members, route, ask, raise_errors=raise_errors)


def _what(group_id: str) -> str:
    return f"group {group_id!r}"


def _is_missing(answer: GroupDescription | KafkaError | None) -> bool:
    return answer is None or isinstance(answer, GroupIdNotFoundError)
