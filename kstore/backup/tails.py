"""Reads the facts for the rules of cut.py from the captured files: the ends of logs, and the
transactions' states.
"""

from __future__ import annotations

from collections.abc import Iterator

from kstore.backup.capture import Captured
from kstore.backup.cut import TailBatch, Transactions
from kstore.protocol.coordinator_records.framing import decode_key, decode_value
from kstore.protocol.coordinator_records.transactions import (
    decode_transaction_key,
    decode_transaction_value,
)
from kstore.record import BatchView, decode
from kstore.types import TopicPartition

__all__ = [
    "OFFSETS_TOPIC",
    "SHARES_TOPIC",
    "TRANSACTIONS_TOPIC",
    "commits_of",
    "read_transactions",
    "tail_of",
]

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARES_TOPIC = "__share_group_state"
COMMIT_TYPES = {0, 1}
PREFIX_BYTES = 2


def tail_of(
    captured: Captured, low: tuple[int, int], *, with_commits: bool = False
) -> Iterator[TailBatch]:
    """The batches after ``low``, a segment's base offset and a position in it."""
    base_offset, position = low
    for segment in captured.segments:
        if segment.base_offset < base_offset:
            continue
        start = position if segment.base_offset == base_offset else 0
        for _, views in segment.pieces(start):
            for view in views:
                yield _tail_batch(view, with_commits=with_commits)


def _tail_batch(view: BatchView, *, with_commits: bool) -> TailBatch:
    return TailBatch(
        view.base_offset,
        view.producer_id,
        view.producer_epoch,
        view.is_transactional,
        view.is_control,
        view.max_timestamp,
        tuple(commits_of(view)) if with_commits and not view.is_control else (),
    )


def commits_of(view: BatchView) -> Iterator[tuple[TopicPartition, int]]:
    """The offsets that a batch of __consumer_offsets commits."""
    for record in decode(view.data, verify=False):
        key, value = record.key, record.value
        if key is None or value is None:
            continue
        if int.from_bytes(key[:PREFIX_BYTES], "big") not in COMMIT_TYPES:
            continue
        commit = decode_key(key)
        offset = decode_value(commit, value)[0].offset  # type: ignore[attr-defined]
        yield TopicPartition(commit.topic, commit.partition), offset  # type: ignore[attr-defined]


def read_transactions(captured: Captured, end: int, transactions: Transactions) -> None:
    """Apply a partition of __transaction_state, up to ``end``."""
    for segment in captured.segments:
        for _, views in segment.pieces():
            for view in views:
                if view.next_offset <= end and not view.is_control:
                    _take(view, transactions)


def _take(view: BatchView, transactions: Transactions) -> None:
    for record in decode(view.data, verify=False):
        key, data = record.key, record.value
        if key is None or data is None or decode_transaction_key(key) is None:
            continue
        value = decode_transaction_value(data)
        places = [
            TopicPartition(each.topic, index)
            for each in value.transaction_partitions or ()
            for index in each.partition_ids
        ]
        transactions.take(
            value.producer_id,
            value.producer_epoch,
            value.transaction_status,
            places,
            value.transaction_last_update_timestamp_ms,
            value.client_transaction_version,
        )
