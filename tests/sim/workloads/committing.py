"""Fetching and committing offsets of a group, for simulated consumers."""

from __future__ import annotations

from typing import Any

from tests.record_requests import commit_request, offsets_request
from tests.sim.history import Place
from tests.sim.workloads.client import Client


async def committed_offset(client: Client, group: str, place: Place) -> int:
    """The offset of a group for a partition, -1 for none; repeated until it is known and stable."""
    request = offsets_request(place.topic, place.partition, group=group, require_stable=True)

    async def ask() -> Any:
        node = await client.coordinator(group, transactional=False)
        row = (await client.ask(node, request, newest=9)).groups[0]
        return row if row.error_code else row.topics[0].partitions[0]

    return (await client.until_done(ask)).committed_offset


async def commit(
    client: Client, node: int, group: str, member: str, epoch: int, place: Place, offset: int
) -> int:
    """Commit once as a member in an epoch and return Kafka's error code. UnansweredError."""
    who = {"member_id": member, "generation_id_or_member_epoch": epoch}
    request = commit_request(place.topic, {place.partition: offset}, group, **who)
    answer = await client.ask(node, request, newest=9)
    return int(answer.topics[0].partitions[0].error_code)
