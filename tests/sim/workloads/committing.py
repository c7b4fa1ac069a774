"""Asking for and committing a group's offsets, for simulated consumers."""

from __future__ import annotations

from kstore.errors import ErrorCode
from tests.plain_messages import Ask
from tests.sim.history import Place
from tests.sim.workloads.client import Client, UnansweredError


async def committed_offset(client: Client, group: str, place: Place) -> int:
    """A group's offset for a partition, -1 for none; asked for until it is told, and stable."""
    request = Ask.OffsetFetch(
        groups=[
            {
                "group_id": group,
                "topics": [{"name": place.topic, "partition_indexes": [place.partition]}],
            }
        ],
        require_stable=True,
    )
    while True:
        node = await client.coordinator(group, transactional=False)
        try:
            answer = await client.ask(node, request, newest=9)
        except UnansweredError:
            await client.pause()
            continue
        row = answer.groups[0]
        if row.error_code == ErrorCode.NONE:
            partition = row.topics[0].partitions[0]
            if partition.error_code == ErrorCode.NONE:
                return int(partition.committed_offset)
        await client.pause()


async def commit(
    client: Client, node: int, group: str, member: str, epoch: int, place: Place, offset: int
) -> int:
    """Commit once as a member in an epoch; Kafka's error code. UnansweredError."""
    request = Ask.OffsetCommit(
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member,
        topics=[
            {
                "name": place.topic,
                "partitions": [{"partition_index": place.partition, "committed_offset": offset}],
            }
        ],
    )
    answer = await client.ask(node, request, newest=9)
    return int(answer.topics[0].partitions[0].error_code)
