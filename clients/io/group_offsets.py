"""Commits and committed offsets of a group: sends requests to its coordinator, with retries.
core/consumer/commits interprets responses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kstore.clients.core.consumer.commits import (
    Commit,
    Verdict,
    commit_request,
    commit_verdict,
    fetch_request,
    fetched_offsets,
    request_version,
)
from kstore.clients.core.group.group_step import CommitClaim
from kstore.clients.io.cluster import GROUP
from kstore.errors import (
    CommitFailedError,
    KafkaError,
    NetworkError,
    RequestTimedOutError,
    StaleMemberEpochError,
    UnknownMemberIdError,
)
from kstore.protocol.groups.offsets import OffsetCommitResponse, OffsetFetchResponse
from kstore.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kstore.clients.core.consumer.subscription import SubscriptionState
    from kstore.clients.io.cluster import ClusterClient

__all__ = ["LANE", "GroupOffsets"]

LANE = "group"
"""Heartbeats and commits use a connection of their own, because fetches may wait at the broker."""
FIRST_FETCH = 8
"""The first version of OffsetFetch that contains groups (KIP-709)."""


class GroupOffsets:
    """Commits of one consumer. ``claim`` returns the member that commits, or raises; ``refused`` is
    called with an error code about the membership.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        settings: Mapping[str, Any],
        subscription: SubscriptionState,
        claim: Callable[[], CommitClaim],
        refused: Callable[[int, CommitClaim], None],
    ) -> None:
        self._cluster = cluster
        self._group_id: str = settings["group.id"]
        self._timeout_ms: int = settings["default.api.timeout.ms"]
        self._backoff_ms: int = settings["retry.backoff.ms"]
        self._is_new_protocol = settings["group.protocol"].lower() == "consumer"
        self._uses_epochs: bool = settings["kstore.kip232.enable"]
        self._subscription = subscription
        self._claim = claim
        self._refused = refused

    async def commit(
        self, commits: Mapping[TopicPartition, Commit], timeout_ms: float | None = None
    ) -> None:
        """Commit, with retries while the coordinator moves or loads, for default.api.timeout.ms.

        Raises CommitFailedError if this is not a member any more, RebalanceInProgressError during a
        rebalance of a classic group, InvalidPartitionEpochError and InvalidLeaderEpochError for
        offsets of a deleted topic or an older log (KIP-232).
        """
        if not commits:
            return
        patience_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        topics = {tp.topic for tp in commits}
        await self._cluster.retrying(lambda: self.commit_once(commits), patience_ms, topics)

    async def commit_once(self, commits: Mapping[TopicPartition, Commit]) -> None:
        """One attempt of `commit`."""
        if not commits:
            return
        topic_ids = self._topic_ids(commits)
        node_id, connection = await self._coordinator()
        knows_epochs = self._uses_epochs and connection.versions.has("kstore.kip232")
        # The claim is taken last, so that it is as current as possible.
        claim = self._claim()
        request = commit_request(
            self._group_id, claim, commits, topic_ids, partition_epochs=knows_epochs
        )
        version = request_version(topic_ids, topic_ids)
        try:
            response = await self._cluster.ask(node_id, request, at_most=version, lane=LANE)
        except (NetworkError, RequestTimedOutError):
            self._forget()
            raise
        assert isinstance(response, OffsetCommitResponse)
        verdict = commit_verdict(request, response)
        self._subscription.note_committed(
            {tp: commits[tp].position for tp in verdict.taken if tp in commits}
        )
        if verdict.verdict is Verdict.MOVED:
            self._forget()
        if verdict.membership_code:
            self._refused(verdict.membership_code, claim)
        if verdict.error is not None:
            raise verdict.error

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The committed offsets, None for partitions without one. Waits until open transactions
        with offsets have ended.
        """
        wanted = list(partitions)
        if not wanted:
            return {}
        patience_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        topics = {tp.topic for tp in wanted}
        return await self._cluster.retrying(
            lambda: self._committed_once(wanted), patience_ms, topics
        )

    async def _committed_once(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        while True:
            topic_ids = self._topic_ids(partitions)
            node_id, connection = await self._coordinator()
            known = connection.versions.has("kstore.kip232")
            epoch_of = self._cluster.view.partition_epoch if known else None
            member = self._member()
            request = fetch_request(self._group_id, member, partitions, topic_ids, epoch_of)
            version = request_version(topic_ids, topic_ids)
            try:
                response = await self._cluster.ask(
                    node_id, request, at_least=FIRST_FETCH, at_most=version, lane=LANE
                )
            except (NetworkError, RequestTimedOutError):
                self._forget()
                raise
            assert isinstance(response, OffsetFetchResponse)
            found = fetched_offsets(request, response)
            if isinstance(found, (StaleMemberEpochError, UnknownMemberIdError)):
                # A heartbeat is outstanding, or will be sent, that brings the new epoch.
                await asyncio.sleep(self._backoff_ms / 1000)
                continue
            if isinstance(found, KafkaError):
                if found.retriable:  # a coordinator that was replaced may answer so forever
                    self._forget()
                raise found
            return found

    def _member(self) -> CommitClaim | None:
        """The member that sends OffsetFetch, if the coordinator checks it."""
        if not (self._is_new_protocol and self._subscription.uses_group):
            return None
        try:
            return self._claim()
        except CommitFailedError:
            return None

    async def _coordinator(self) -> tuple[int, Any]:
        node_id = await self._cluster.coordinator(GROUP, self._group_id)
        try:
            return node_id, await self._cluster.connection(node_id, lane=LANE)
        except NetworkError:
            self._forget()
            raise

    def _forget(self) -> None:
        self._cluster.forget_coordinator(GROUP, self._group_id)

    def _topic_ids(self, partitions: Collection[TopicPartition]) -> dict[str, UUID]:
        view = self._cluster.view
        return {name: view.topic_id(name) for name in {tp.topic for tp in partitions}}
