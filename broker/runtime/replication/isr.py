"""The in-sync replicas of the partitions that this broker leads. It proposes changes to the
controller with AlterPartition (KIP-497) and applies the decisions.

When a fetch shows that a follower has caught up, it is proposed (partition_table.pyx). A timer here
finds followers that have not caught up for replica.lag.time.max.ms. A partition has at most one
open proposal. Until it is decided, the high watermark waits for both the old ISR and the proposed
one. A proposal whose response is lost is therefore sent again and never dropped: the controller may
have accepted it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from kstore.broker.runtime.slices import Slices
from kstore.errors import ErrorCode, KafkaError
from kstore.protocol.controller.broker_requests import (
    AlteredPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    IsrPartition,
    IsrTopic,
)

if TYPE_CHECKING:
    from kstore._fast.broker.partition import Partition
    from kstore._fast.broker.partition_table import PartitionTable
    from kstore.broker.runtime.lazy import Lazy
    from kstore.broker.runtime.membership.membership import Membership
    from kstore.broker.runtime.node import Node
    from kstore.broker.runtime.peers.peers import Peers

__all__ = ["IsrChanges"]

log = logging.getLogger("kstore.broker")
RETRY_S = 0.05
LONGEST_RETRY_S = 1.0
"""The longest pause between attempts, for example while the coordination store is unavailable."""
REFUSED_S = 0.1
"""How long a replica that the controller refuses is not proposed again."""
ANSWER_S = 10.0

AGAIN = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
REFUSED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
"""Errors after which the ISR is unchanged. After any other error, a LeaderAndIsr or StopReplica
will arrive.
"""


class IsrChanges:
    """Collects, sends and applies proposals of ISRs."""

    def __init__(
        self, node: Node, table: PartitionTable, membership: Membership, peers: Lazy[Peers]
    ) -> None:
        self._node = node
        self._table = table
        self._membership = membership
        self._peers = peers
        self._waiting: dict[Partition, None] = {}
        self._sender: asyncio.Task[None] | None = None
        self._checker: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Accept proposals of the data plane, and look for followers that lag."""
        self._table.replication.max_lag_ms = self._max_lag_ms
        self._table.on_isr_change = self._proposed
        self._set_timer()

    def close(self) -> None:
        """Stop proposing."""
        self._table.on_isr_change = None
        if self._timer is not None:
            self._timer.cancel()
        for task in (self._sender, self._checker):
            if task is not None:
                task.cancel()

    @property
    def _max_lag_ms(self) -> int:
        value: int = self._node.config["replica.lag.time.max.ms"]
        return value

    # ---- followers that lag ----

    def _set_timer(self) -> None:
        self._timer = self._node.loop.call_later(self._max_lag_ms / 2000, self._tick)

    def _tick(self) -> None:
        self._checker = self._node.loop.create_task(self._check())
        self._set_timer()

    async def _check(self) -> None:
        """Propose ISRs without the followers that lag. High watermarks no longer wait for replicas
        outside the ISR.
        """
        slices = Slices()
        for entry in self._table.topics():
            for partition in list(entry.partitions):
                if partition is None or partition.replication is None:
                    continue
                now_ms = self._table.replication.now_ms()
                late = partition.shrink_candidates(now_ms, self._max_lag_ms)
                if late:
                    log.info("%s-%d: %s lag behind", entry.name.decode(), partition.index, late)
                    partition.propose_isr(tuple(n for n in partition.isr if n not in late))
                partition.advance()
                await slices.breathe()

    # ---- open proposals ----

    def _proposed(self, partition: Partition, isr: tuple[int, ...]) -> None:
        self._waiting[partition] = None
        if self._sender is None or self._sender.done():
            self._sender = self._node.loop.create_task(self._send_all())

    async def _send_all(self) -> None:
        """Send proposals until none is left, those of one turn of the loop together."""
        pause_s = RETRY_S
        while self._waiting:
            batch = [each for each in self._waiting if each.proposed_isr is not None]
            self._waiting.clear()
            if not batch or not await self._send(batch):
                pause_s = RETRY_S
                continue
            self._waiting.update(
                dict.fromkeys(each for each in batch if each.proposed_isr is not None)
            )
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_RETRY_S)

    async def _send(self, batch: list[Partition]) -> bool:
        """Send proposals to the controller once. Returns whether some must be sent again."""
        membership = self._membership
        if membership.controller_id < 0:
            return True
        requested = {(each.entry.topic_id, each.index): (each, each.proposed_isr) for each in batch}
        request = self._request(batch, membership.broker_epoch)
        try:
            if membership.controller is not None:
                response = await membership.controller.alter_partition(request)
            else:
                response = await self._peers().ask(membership.controller_id, request, ANSWER_S)
        except KafkaError as problem:
            log.info("ISR changes can't be sent to the controller: %s", problem)
            return True
        except Exception:
            log.exception("an ISR proposal failed; trying again")
            return True
        if response.error_code != ErrorCode.NONE:
            return True
        again = False
        for topic_id, row in _rows(response):
            partition, isr = requested.pop((topic_id.bytes, row.partition_index), (None, None))
            if partition is not None and partition.proposed_isr is isr:
                again |= self._decided(partition, row)
        return again or bool(requested)

    def _decided(self, partition: Partition, row: AlteredPartition) -> bool:
        """Apply the result of a proposal. Returns whether the proposal must be sent again."""
        code = row.error_code
        if code in (ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION):
            # If the proposal had an old version, the response has the current state, too.
            if partition.isr_applied(tuple(row.isr), row.partition_epoch, row.leader_epoch):
                return False
            if code == ErrorCode.NONE and row.leader_epoch == partition.leader_epoch:
                partition.isr_refused()  # the proposal equals the current state
                return False
            return True
        if code in REFUSED:
            self._node.loop.call_later(REFUSED_S, _drop, partition, partition.proposed_isr)
        return code in AGAIN

    def _request(self, batch: Iterable[Partition], broker_epoch: int) -> AlterPartitionRequest:
        topics: dict[bytes, IsrTopic] = {}
        for partition in batch:
            topic_id = partition.entry.topic_id
            topic = topics.setdefault(topic_id, IsrTopic(topic_id=UUID(bytes=topic_id)))
            topic.partitions.append(
                IsrPartition(
                    partition_index=partition.index,
                    leader_epoch=partition.leader_epoch,
                    new_isr_with_epochs=self._members(partition, broker_epoch),
                    partition_epoch=partition.isr_version,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._node.node_id,
            broker_epoch=broker_epoch,
            topics=list(topics.values()),
        )

    def _members(self, partition: Partition, broker_epoch: int) -> list[BrokerState]:
        """The proposed ISR, with the broker epoch in which each member last fetched (KIP-903)."""
        members = []
        for node_id in partition.proposed_isr or ():
            epoch = broker_epoch
            if node_id != self._node.node_id:
                replication = partition.replication
                follower = None if replication is None else replication.follower(node_id)
                epoch = -1 if follower is None else follower.broker_epoch
            members.append(BrokerState(broker_id=node_id, broker_epoch=epoch))
        return members


def _rows(response: AlterPartitionResponse) -> Iterable[tuple[UUID, AlteredPartition]]:
    return ((topic.topic_id, row) for topic in response.topics for row in topic.partitions)


def _drop(partition: Partition, isr: tuple[int, ...] | None) -> None:
    if partition.proposed_isr is isr:
        partition.isr_refused()
