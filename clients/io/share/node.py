"""One broker of a share consumer: its session, and its requests, one at a time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, cast
from uuid import UUID

from kstore.clients.core.backoff import pause_ms
from kstore.clients.core.metadata import Broker
from kstore.clients.core.share.acknowledgements import AcknowledgeType
from kstore.clients.core.share.arrivals import arrivals
from kstore.clients.core.share.session import SESSION_ERRORS, ShareSession
from kstore.errors import (
    ErrorCode,
    InvalidShareSessionEpochError,
    KafkaError,
    error_for,
)
from kstore.protocol.schema import Message
from kstore.protocol.shares.acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from kstore.protocol.shares.fetch import (
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchResponsePartitionData,
)
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore.clients.io.share.shell import ShareShell

__all__ = ["ShareNode"]

LANE = "share"
ACQUIRE_MODES = {"batch_optimized": 0, "record_limit": 1}
RENEWS = 2
"""The first version in which records can be renewed (KIP-1222)."""
Types = dict[TopicPartition, dict[int, int]]


class ShareNode:
    """Requests to one broker. The lock keeps the epochs of the session in order."""

    def __init__(self, shell: ShareShell, node_id: int, member_id: str) -> None:
        self.node_id = node_id
        self.is_fetching = False
        self.is_pausing = False
        """Whether it waits before the next fetch; acknowledgements do not wait."""
        self._shell = shell
        self._member_id = member_id
        self._session = ShareSession()
        self._lock = asyncio.Lock()
        self._failures = 0
        self._ids: dict[TopicPartition, UUID] = {}

    # ---- fetching ----

    async def fetch(self, wanted: set[TopicPartition], max_records: int) -> None:
        """Acquire records of these partitions, and send acknowledgements with the request."""
        try:
            async with self._lock:
                in_vain = await self._fetch(wanted, max_records)
            if in_vain:
                self._back_off()
        finally:
            self.is_fetching = False
            self._shell.event.set()

    async def _fetch(self, wanted: set[TopicPartition], max_records: int) -> bool:
        """Returns whether the broker refused partitions and gave no records and no new leader: it
        would answer the next fetch at once, too.
        """
        shell = self._shell
        names = self._partitions(wanted)
        if not self._session.is_new:
            # A renewal, and acknowledgements in a partition that was removed, need requests of
            # their own.
            await self._send(lambda tp, kind: tp not in wanted or kind == AcknowledgeType.RENEW)
        types: Types = {}
        if not self._session.is_new:
            types = shell.holdings.begin_sending(self.node_id)
        settings = shell.settings
        request = ShareFetchRequest(
            group_id=settings["group.id"],
            member_id=self._member_id,
            max_wait_ms=settings["fetch.max.wait.ms"],
            min_bytes=settings["fetch.min.bytes"],
            max_bytes=settings["fetch.max.bytes"],
            max_records=max_records,
            batch_size=max_records,
            share_acquire_mode=ACQUIRE_MODES[settings["share.acquire.mode"].lower()],
        )
        self._session.fill_fetch(request, names, self._by_id(types))
        try:
            answer = await self._ask(request, extra_wait_ms=settings["fetch.max.wait.ms"])
            response = cast(ShareFetchResponse, answer)
            if response.error_code:
                raise error_for(response.error_code, response.error_message)
        except KafkaError as error:
            self._fail(types, error)
            self._pause(error)
            return False
        self._session.answered()
        in_vain = self._take(response, types)
        if not in_vain:
            self._failures = 0
        return in_vain

    def _take(self, response: ShareFetchResponse, types: Types) -> bool:
        shell = self._shell
        refused, helped = False, False
        for node in response.node_endpoints:
            shell.cluster.view.update_broker(Broker(node.node_id, node.host, node.port, node.rack))
        shell.lock_timeout_ms = response.acquisition_lock_timeout_ms or shell.lock_timeout_ms
        expires_ms = self._expires_ms()
        names = {topic_id: tp.topic for tp, topic_id in self._ids.items()}
        for topic in response.responses:
            for row in topic.partitions:
                tp = TopicPartition(names.get(topic.topic_id, ""), row.partition_index)
                if tp in types:
                    problem = _error(tp, row.acknowledge_error_code, row.acknowledge_error_message)
                    self._done(tp, types.pop(tp), problem)
                refused |= row.error_code != ErrorCode.NONE
                helped |= self._take_records(tp, row, expires_ms)
        for tp, rest in types.items():  # not in the response: no error
            self._done(tp, rest, None)
        return refused and not helped

    def _take_records(
        self, tp: TopicPartition, row: ShareFetchResponsePartitionData, expires_ms: float
    ) -> bool:
        """Returns whether there are records, or a new leader."""
        shell = self._shell
        if row.error_code:
            leader = row.current_leader
            is_new = shell.cluster.view.update_leader(tp, leader.leader_id, leader.leader_epoch)
            shell.cluster.want_refresh()
            error = error_for(row.error_code, row.error_message)
            if not error.retriable:
                shell.failures.append(error)
            return is_new
        found = arrivals(
            tp,
            cast("bytes | None", row.records),
            row.acquired_records,
            node_id=self.node_id,
            expires_ms=expires_ms,
            verify=shell.settings["check.crcs"],
        )
        shell.holdings.arrived(found.rows)
        if found.error is not None:
            shell.failures.append(found.error)
        return bool(found.rows)

    # ---- acknowledging ----

    async def acknowledge(self) -> None:
        """Send the acknowledgements of this broker's records."""
        async with self._lock:
            await self._send(lambda tp, kind: True)

    async def close(self) -> None:
        """Send the acknowledgements, and end the session: the broker releases all other records.
        Nothing is renewed any more.
        """
        async with self._lock:
            types = self._shell.holdings.begin_sending(
                self.node_id, lambda tp, kind: kind != AcknowledgeType.RENEW
            )
            if not self._session.is_new:
                await self._request(types, is_last=True)
            else:
                self._fail(types, InvalidShareSessionEpochError(self._no_session))

    @property
    def _no_session(self) -> str:
        return (
            f"the share session with broker {self.node_id} is over; its records are delivered again"
        )

    async def _send(self, wanted: Callable[[TopicPartition, int], bool]) -> None:
        types = self._shell.holdings.begin_sending(self.node_id, wanted)
        if types and self._session.is_new:
            self._fail(types, InvalidShareSessionEpochError(self._no_session))
        elif types:
            await self._request(types)

    async def _request(self, types: Types, *, is_last: bool = False) -> None:
        renews = any(AcknowledgeType.RENEW in rows.values() for rows in types.values())
        request = ShareAcknowledgeRequest(
            group_id=self._shell.settings["group.id"],
            member_id=self._member_id,
            is_renew_ack=renews,
        )
        self._session.fill_acknowledge(request, self._by_id(types), is_last=is_last)
        try:
            answer = await self._ask(request, at_least=RENEWS if renews else 0)
            response = cast(ShareAcknowledgeResponse, answer)
            if response.error_code:
                raise error_for(response.error_code, response.error_message)
        except KafkaError as error:
            self._fail(types, error)
            return
        if not is_last:
            self._session.answered()
        shell = self._shell
        shell.lock_timeout_ms = response.acquisition_lock_timeout_ms or shell.lock_timeout_ms
        names = {topic_id: tp.topic for tp, topic_id in self._ids.items()}
        errors: dict[TopicPartition, KafkaError | None] = {}
        for topic in response.responses:
            for row in topic.partitions:
                tp = TopicPartition(names.get(topic.topic_id, ""), row.partition_index)
                errors[tp] = _error(tp, row.error_code, row.error_message)
                leader = row.current_leader
                if row.error_code and shell.cluster.view.update_leader(
                    tp, leader.leader_id, leader.leader_epoch
                ):
                    shell.cluster.want_refresh()
        for tp, rows in types.items():
            self._done(tp, rows, errors.get(tp))

    # ---- both ----

    async def _ask(self, request: Message, *, at_least: int = 0, extra_wait_ms: int = 0) -> Message:
        return await self._shell.cluster.ask(
            self.node_id, request, at_least=at_least, extra_wait_ms=extra_wait_ms, lane=LANE
        )

    def _partitions(self, wanted: set[TopicPartition]) -> list[tuple[UUID, int]]:
        view = self._shell.cluster.view
        self._ids.update({tp: view.topic_id(tp.topic) for tp in wanted})
        return [(self._ids[tp], tp.partition) for tp in wanted]

    def _by_id(self, types: Types) -> dict[tuple[UUID, int], dict[int, int]]:
        return {(self._ids[tp], tp.partition): rows for tp, rows in types.items()}

    def _expires_ms(self) -> float:
        lock_ms = self._shell.lock_timeout_ms
        now_ms = self._shell.loop.time() * 1000
        return now_ms + lock_ms if lock_ms else float("inf")

    def _done(self, tp: TopicPartition, rows: dict[int, int], error: KafkaError | None) -> None:
        """Note the results of acknowledgements."""
        shell = self._shell
        result = shell.holdings.sent(tp, rows, error, self._expires_ms())
        shell.done(result)

    def _fail(self, types: Types, error: KafkaError) -> None:
        """A request failed: the session starts again, and nothing of the old one counts."""
        self._session.failed()
        self._shell.holdings.lose(self.node_id)
        for tp, rows in types.items():
            self._done(tp, rows, error)

    def _pause(self, error: KafkaError) -> None:
        """After a failed fetch. Sessions that no longer exist start again at once."""
        shell = self._shell
        if error.code in SESSION_ERRORS - {ErrorCode.SHARE_SESSION_LIMIT_REACHED}:
            return
        if not error.retriable and error.code not in SESSION_ERRORS:
            shell.failures.append(error)
        shell.cluster.want_refresh()
        self._back_off()

    def _back_off(self) -> None:
        """Begin a pause, outside the fetch: with record_limit, other brokers would wait for it."""
        self._failures += 1
        first, most = (
            self._shell.settings[name] for name in ("retry.backoff.ms", "retry.backoff.max.ms")
        )
        self.is_pausing = True
        pause_s = pause_ms(self._failures, first, most, random.random()) / 1000
        self._shell.loop.call_later(pause_s, self._end_pause)

    def _end_pause(self) -> None:
        self.is_pausing = False
        self._shell.event.set()


def _error(tp: TopicPartition, code: int, message: str | None) -> KafkaError | None:
    return error_for(code, f"{tp}: {message}" if message else None) if code else None
