"""Groups for AdminClient: state, members and committed offsets."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from kstore.clients.compat.confluent.admin.descriptions import (
    ConsumerGroupListing,
    ListConsumerGroupsResult,
    group_description,
    group_state,
    group_type,
)
from kstore.clients.compat.confluent.admin.futures import AdminBase, Futures, names_of
from kstore.clients.compat.confluent.error import error_of
from kstore.clients.compat.confluent.metadata import GroupMetadata, group_metadata
from kstore.clients.compat.confluent.model import (
    ConsumerGroupTopicPartitions,
    Node,
    TopicPartition,
)

__all__ = ["GroupsAdmin"]


class GroupsAdmin(AdminBase):
    """The methods about groups."""

    def list_consumer_groups(self, **options: Any) -> Future[Any]:
        """The groups of the cluster; the keywords states and types filter them."""
        states, types = options.get("states"), options.get("types")

        def result(found: Iterable[Any]) -> ListConsumerGroupsResult:
            rows = [
                ConsumerGroupListing(
                    row.group_id, not row.protocol_type, group_state(row.state),
                    group_type(row.group_type),
                )
                for row in found
                if row.protocol_type in ("consumer", "")
            ]  # fmt: skip
            rows = [row for row in rows if not states or row.state in states]
            return ListConsumerGroupsResult([row for row in rows if not types or row.type in types])

        return self._one(self._client.list_groups(), options, result)

    def list_groups(self, group: str | None = None, timeout: float = -1) -> list[GroupMetadata]:
        """The groups, in the form of the older API."""
        rows = self._admin.list_groups()
        return [group_metadata(row, None) for row in rows if group in (None, row.group_id)]

    def describe_consumer_groups(self, group_ids: list[str], **options: Any) -> Futures[str]:
        """State and members of groups."""
        nodes: dict[int, Node] = {}

        async def describe() -> Any:
            nodes.update(await self._nodes())
            return await self._client.describe_groups(
                group_ids,
                authorized_operations=options.get("include_authorized_operations", False),
                raise_errors=False,
            )

        names = {name: name for name in names_of(group_ids)}
        return self._each(
            names, describe(), options, lambda _name, found: group_description(found, nodes)
        )

    def delete_consumer_groups(self, group_ids: list[str], **options: Any) -> Futures[str]:
        """Delete empty groups."""
        names = names_of(group_ids)
        call = self._client.delete_groups(names, raise_errors=False)
        return self._each({name: name for name in names}, call, options)

    def list_consumer_group_offsets(
        self,
        list_consumer_group_offsets_request: list[ConsumerGroupTopicPartitions],
        **options: Any,
    ) -> Futures[str]:
        """Committed offsets of groups, for some partitions or for all."""
        futures: Futures[str] = {}
        for request in list_consumer_group_offsets_request:
            wanted = None
            if request.topic_partitions is not None:
                wanted = [row.pair for row in request.topic_partitions]
            call = self._client.list_group_offsets(
                request.group_id, wanted, require_stable=options.get("require_stable", False)
            )

            def result(
                found: Any, group_id: str = request.group_id, wanted: Any = wanted
            ) -> ConsumerGroupTopicPartitions:
                rows = found if wanted is None else wanted
                partitions = [TopicPartition.at(tp, found.get(tp)) for tp in rows]
                return ConsumerGroupTopicPartitions(group_id, partitions)

            futures[request.group_id] = self._one(call, options, result)
        return futures

    def alter_consumer_group_offsets(
        self,
        alter_consumer_group_offsets_request: list[ConsumerGroupTopicPartitions],
        **options: Any,
    ) -> Futures[str]:
        """Commit offsets for groups without members."""
        futures: Futures[str] = {}
        for request in alter_consumer_group_offsets_request:
            rows = request.topic_partitions or []
            call = self._client.alter_group_offsets(
                request.group_id, {row.pair: row.committable for row in rows}, raise_errors=False
            )

            def result(
                found: Any, group_id: str = request.group_id, rows: Any = rows
            ) -> ConsumerGroupTopicPartitions:
                for row in rows:
                    error = found.errors.get(row.pair)
                    row.error = None if error is None else error_of(error)
                return ConsumerGroupTopicPartitions(group_id, rows)

            futures[request.group_id] = self._one(call, options, result)
        return futures
