"""Commits and committed offsets as messages, their answers, and automatic commits."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kstore.clients.core.consumer.commits import (
    AutoCommit,
    Verdict,
    commit_request,
    commit_row,
    commit_verdict,
    commits_of,
    fetch_request,
    fetched_offsets,
    request_version,
)
from kstore.clients.core.consumer.offset_epoch import encode
from kstore.clients.core.consumer.positions import committable
from kstore.clients.core.consumer.subscription import Position
from kstore.clients.core.group.group_step import CommitClaim
from kstore.errors import (
    CommitFailedError,
    ErrorCode,
    FencedInstanceIdError,
    InvalidLeaderEpochError,
    InvalidPartitionEpochError,
    KafkaError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    UnstableOffsetCommitError,
)
from kstore.protocol.groups.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetFetchResponse,
)
from kstore.protocol.transactions.transactions import TxnOffsetCommitRequestPartition
from kstore.types import OffsetAndMetadata, TopicPartition
from tests.plain_messages import Answer

ID = UUID(int=7)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
CLAIM = CommitClaim(3, "m", "i")


def request(*, partition_epochs: bool = True) -> OffsetCommitRequest:
    """A commit of two partitions."""
    offsets = {
        T1: OffsetAndMetadata(9, "note", 2),
        T0: OffsetAndMetadata(5, offset_epoch=encode(40, 6)),
    }
    commits = commits_of(offsets)
    return commit_request("g", CLAIM, commits, {"t": ID}, partition_epochs=partition_epochs)


def answer(*codes: int, by_id: bool = False) -> OffsetCommitResponse:
    """One code per partition of ``t``."""
    rows = [{"partition_index": index, "error_code": code} for index, code in enumerate(codes)]
    name = "" if by_id else "t"
    return Answer.OffsetCommit(topics=[{"name": name, "topic_id": ID, "partitions": rows}])


def test_a_commit_carries_both_epochs_and_who_it_is_from() -> None:
    made = request()
    assert (made.generation_id_or_member_epoch, made.member_id) == (3, "m")
    assert made.group_instance_id == "i"
    rows = made.topics[0].partitions
    assert [(row.committed_offset, row.committed_leader_epoch) for row in rows] == [(5, 6), (9, 2)]
    assert [(row.partition_epoch, row.committed_metadata) for row in rows] == [
        (40, ""),
        (-1, "note"),
    ]


def test_partition_epochs_go_only_to_brokers_that_know_them() -> None:
    rows = request(partition_epochs=False).topics[0].partitions
    assert [row.partition_epoch for row in rows] == [-1, -1]


def test_what_is_no_offset_is_refused_here() -> None:
    for bad in (OffsetAndMetadata(-1), OffsetAndMetadata(1, offset_epoch=b"?")):
        with pytest.raises(ValueError, match=r"not a committable offset|not an offset epoch"):
            commit_request("g", CLAIM, commits_of({T0: bad}), {}, partition_epochs=True)


def test_topics_go_by_id_only_if_all_have_one() -> None:
    assert request_version(["t"], {"t": ID}) == 10
    assert request_version(["t", "u"], {"t": ID}) == 9


def test_a_commit_is_what_its_position_is() -> None:
    for position in (Position(5), Position(5, 2), Position(5, 2, 40), Position(0, -1, 0)):
        (commit,) = commits_of({T0: committable(position, "note")}).values()
        assert commit == (position, "note")


@pytest.mark.parametrize("kind", [OffsetCommitRequestPartition, TxnOffsetCommitRequestPartition])
def test_rows_of_a_group_and_of_a_transaction_are_made_alike(kind: Any) -> None:
    (commit,) = commits_of({T0: OffsetAndMetadata(5, "note", 2, encode(40, 6))}).values()
    row = commit_row(kind, 3, commit, partition_epochs=True)
    assert (row.partition_index, row.committed_offset, row.committed_metadata) == (3, 5, "note")
    assert (row.committed_leader_epoch, row.partition_epoch) == (6, 40)


@pytest.mark.parametrize("by_id", [False, True])
def test_an_answer_without_errors_says_what_was_taken(by_id: bool) -> None:
    verdict = commit_verdict(request(), answer(0, 0, by_id=by_id))
    assert (verdict.verdict, verdict.taken) == (Verdict.DONE, {T0, T1})


@pytest.mark.parametrize(
    ("code", "error", "tells_member"),
    [
        (ErrorCode.ILLEGAL_GENERATION, CommitFailedError, True),
        (ErrorCode.UNKNOWN_MEMBER_ID, CommitFailedError, True),
        (ErrorCode.STALE_MEMBER_EPOCH, CommitFailedError, True),
        (ErrorCode.REBALANCE_IN_PROGRESS, RebalanceInProgressError, True),
        (ErrorCode.FENCED_INSTANCE_ID, FencedInstanceIdError, True),
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, OffsetMetadataTooLargeError, False),
        (ErrorCode.INVALID_PARTITION_EPOCH, InvalidPartitionEpochError, False),
        (ErrorCode.INVALID_LEADER_EPOCH, InvalidLeaderEpochError, False),
    ],
)
def test_what_cannot_be_tried_again_counts_before_what_can(
    code: int, error: type[KafkaError], tells_member: bool
) -> None:
    verdict = commit_verdict(request(), answer(ErrorCode.NOT_COORDINATOR, code))
    assert verdict.verdict is Verdict.FAILED
    assert type(verdict.error) is error
    assert verdict.membership_code == (code if tells_member else 0)
    assert not verdict.error.retriable


def test_a_moved_coordinator_is_looked_up_and_a_loading_one_asked_again() -> None:
    moved = commit_verdict(request(), answer(0, ErrorCode.NOT_COORDINATOR))
    assert (moved.verdict, moved.taken) == (Verdict.MOVED, {T0})
    assert isinstance(moved.error, NotCoordinatorError)
    for code in (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ):
        again = commit_verdict(request(), answer(0, code))
        assert again.verdict is Verdict.RETRY
        assert again.error is not None
        assert again.error.retriable


def test_the_errors_of_old_epochs_name_the_partitions() -> None:
    verdict = commit_verdict(request(), answer(0, ErrorCode.INVALID_PARTITION_EPOCH))
    assert "t-1" in str(verdict.error)
    assert "t-0" not in str(verdict.error)


def fetched(code: int = 0, group_code: int = 0) -> OffsetFetchResponse:
    """t-0 at 5 with epochs, t-1 without a commit."""
    rows = [
        {
            "partition_index": 0,
            "committed_offset": 5,
            "committed_leader_epoch": 6,
            "metadata": "note",
            "partition_epoch": 40,
            "error_code": code,
        },
        {"partition_index": 1, "committed_offset": -1},
    ]
    topics = [{"topic_id": ID, "partitions": rows}]
    group = {"group_id": "g", "topics": topics, "error_code": group_code}
    return Answer.OffsetFetch(groups=[group])


def test_committed_offsets_come_with_their_epochs() -> None:
    asked = fetch_request("g", CLAIM, [T1, T0], {"t": ID})
    assert (asked.groups[0].member_id, asked.groups[0].member_epoch) == ("m", 3)
    assert asked.require_stable
    found = fetched_offsets(asked, fetched())
    assert found == {T0: OffsetAndMetadata(5, "note", 6, encode(40, 6)), T1: None}


def test_an_error_of_the_group_or_of_a_partition_is_that_of_the_answer() -> None:
    asked = fetch_request("g", None, [T0], {"t": ID})
    assert (asked.groups[0].member_id, asked.groups[0].member_epoch) == (None, -1)
    moved = fetched_offsets(asked, fetched(group_code=ErrorCode.NOT_COORDINATOR))
    assert isinstance(moved, NotCoordinatorError)
    unstable = fetched_offsets(asked, fetched(code=ErrorCode.UNSTABLE_OFFSET_COMMIT))
    assert isinstance(unstable, UnstableOffsetCommitError)


def test_the_automatic_commit_is_due_each_interval_and_one_at_a_time() -> None:
    auto = AutoCommit(interval_ms=5_000, backoff_ms=100)
    assert not auto.is_due(1_000)
    assert not auto.is_due(5_999)
    assert auto.is_due(6_000)
    auto.begin(6_000)
    assert not auto.is_due(20_000)
    auto.end(20_000, retry=False)
    assert auto.is_due(20_000)
    auto.begin(20_000)
    auto.end(20_010, retry=True)
    assert not auto.is_due(20_109)
    assert auto.is_due(20_110)
