"""Commits that name one topic in several entries: no partition is left without an answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from kstore.broker.api.groups.offsets import handle_offset_commit
from kstore.broker.api.transactions.transactions import handle_txn_offset_commit
from kstore.errors import ErrorCode, error_for
from kstore.protocol.groups.offsets import OffsetCommitResponse
from tests.plain_messages import Ask

ABSENT, REFUSED = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_GROUP_ID
ENTRIES = ((0, 7), (0, 8))
WANTED = [(0, REFUSED), (0, REFUSED), (7, ABSENT), (8, ABSENT)]


def broker_without_group() -> Any:
    """One topic with one partition; no group may have the requested id."""
    topic = SimpleNamespace(name="t", topic_id=UUID(int=1), partitions=[object()])
    image = SimpleNamespace(
        topics={"t": topic}, partition=lambda name, index: None if index else topic.partitions[0]
    )

    def answer(*_: Any) -> OffsetCommitResponse:
        raise error_for(REFUSED)

    groups = SimpleNamespace(answer=answer)
    return SimpleNamespace(image=image, groups=lambda: groups, partition_lookup=None)


def rows_of(response: Any) -> list[tuple[int, int]]:
    [topic] = response.topics
    return sorted((row.partition_index, row.error_code) for row in topic.partitions)


def test_a_commit_answers_for_each_partition_of_each_entry() -> None:
    topics = [
        {"name": "t", "partitions": [{"partition_index": index} for index in indexes]}
        for indexes in ENTRIES
    ]
    ctx: Any = SimpleNamespace(api_version=8)
    response = handle_offset_commit(
        broker_without_group(), Ask.OffsetCommit(group_id="g", topics=topics), ctx
    )
    assert rows_of(response) == WANTED


def test_a_commit_in_a_transaction_answers_for_each_partition_of_each_entry() -> None:
    topics = [
        {"name": "t", "partitions": [{"partition_index": index} for index in indexes]}
        for indexes in ENTRIES
    ]
    ctx: Any = SimpleNamespace(api_version=4)
    request = Ask.TxnOffsetCommit(group_id="", topics=topics)
    response = asyncio.run(handle_txn_offset_commit(broker_without_group(), request, ctx))
    assert rows_of(response) == WANTED
