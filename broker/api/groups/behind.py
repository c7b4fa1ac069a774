"""GroupsBehind 0, an extension (KIP-253): the controller asks which groups have not read the
retiring partitions of a topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.broker.state.metadata.retirement import Retirement
from kstore.errors import KafkaError
from kstore.protocol.groups.groups_behind import GroupsBehindRequest, GroupsBehindResponse

if TYPE_CHECKING:
    from kstore.broker.api import RequestContext
    from kstore.broker.api.groups.parts import GroupParts

__all__ = ["handle_groups_behind"]


async def handle_groups_behind(
    broker: GroupParts, request: GroupsBehindRequest, ctx: RequestContext
) -> GroupsBehindResponse:
    """Check all groups of this coordinator. The response has an error if the result cannot be
    known.
    """
    requested = Retirement(
        request.retired_from, request.retired_epoch, request.retired_partition_epoch
    )
    try:
        partitions, groups = await broker.groups().behind(
            request.topic_name, request.topic_id, requested
        )
    except KafkaError as problem:
        return GroupsBehindResponse(error_code=problem.code)
    return GroupsBehindResponse(partitions=partitions, groups=groups)
