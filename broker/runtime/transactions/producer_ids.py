"""Allocates producer ids, which are never used twice in a cluster. This broker takes blocks of 1000
ids from the store, and allocates ids from its block.

The node is Kafka's `/latest_producer_id_block`. As in Kafka, the rest of a block is lost when the
broker stops. If logs are copied from another cluster with their producer ids, the node also has the
smallest id that this cluster may allocate. A store that is restored from an older copy has an older
node, or none: ids that were allocated after the copy would be allocated again, and a new producer's
batch could be taken for a duplicate of the other one's. Brokers may not notice a restore, so every
block begins where the clock says, or after the last block if that is further. If a broker notices
that the store was restored, it leaves many ids out in addition.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kstore.broker.coordination.partition_nodes import TOPICS
from kstore.broker.coordination.store import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    StoreError,
)
from kstore.errors import ErrorCode, KafkaError, error_for

if TYPE_CHECKING:
    from kstore.broker.coordination.store import Store

__all__ = ["Block", "ProducerIds", "skip_blocks", "take_block"]

LOGGER = logging.getLogger(__name__)
NODE = "/latest_producer_id_block"
LEAST = "kstore_least"
BLOCK_SIZE = 1000
NO_PRODUCER_ID = -1
LEFT_OUT = 1 << 20
"""The number of ids that are left out at least, if the store was restored."""
PER_SECOND = 1024
"""More ids than a cluster allocates in a second on average. A block begins at this many for each
second since `START_S` or above: above all that were allocated before, also after an earlier restore
of the same copy.
"""
MOST_BY_CLOCK = 15 << 36
"""The clock is ignored if it says more than that, as it will in 2056. The ids from 2^40 on may be
another cluster's, which has exact copies.
"""
START_S = 1_735_689_600
"""1 January 2025, in Unix seconds."""
AGAIN_S = 60.0
"""Notices of an older store within this time are of the same restore."""


class ProducerIds:
    """Allocates ids on the loop; fetches the next block in a thread."""

    def __init__(
        self,
        store: Store,
        broker_id: int,
        run_blocking: Callable[[Callable[[], Any]], Awaitable[Any]],
    ) -> None:
        self._store = store
        self._broker_id = broker_id
        self._run_blocking = run_blocking
        self._next = 0
        self._end = 0
        self.least = 0
        """The smallest id that may be allocated. Known once there was a block."""
        self._one_at_a_time = asyncio.Lock()
        self._noticed_at = -AGAIN_S
        """When the store was last found to be older, by the monotonic clock."""
        self._notices = 0
        """How often the store was found to be older."""
        self._left_out = 0
        """After how many of these notices ids were left out."""

    async def next_id(self) -> int:
        """An id that no other producer has or will have. Raises KafkaError while the store is
        unavailable.
        """
        while not self.is_ready:
            await self.prepare()
        return self.take()

    @property
    def is_ready(self) -> bool:
        """Whether the block has an id left."""
        return self._next < self._end

    async def prepare(self) -> None:
        """Fetch the next block if this one is used up. Other calls may take ids from it before the
        caller does. While the store is unavailable, raises a KafkaError that producers retry.
        """
        async with self._one_at_a_time:
            while not self.is_ready:
                notices = self._notices
                left_out = LEFT_OUT if notices > self._left_out else 0
                try:
                    block = await self._run_blocking(
                        partial(take_block, self._store, self._broker_id, left_out)
                    )
                except StoreError as error:
                    LOGGER.error("producer ids can't be allocated: %s", error)
                    raise error_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) from error
                if self._notices != notices:
                    continue  # the block may be of the time before
                self._left_out = notices
                self._next, self.least = block.first, block.least
                self._end = self._next + BLOCK_SIZE

    async def note_older_store(self) -> None:
        """The store was restored from an older copy: this broker's block, and those that follow in
        the store, may have been allocated before. Further calls within a minute have no effect.
        """
        now = time.monotonic()
        if now - self._noticed_at < AGAIN_S:
            return
        self._noticed_at = now
        self._notices += 1
        self._next = self._end = 0
        with suppress(KafkaError):  # it was logged, and the next block leaves them out, too
            await self.prepare()

    async def skip_to(self, least: int) -> None:
        """From now on, allocate no id below ``least`` on this broker. For the whole cluster, call
        this on all brokers. Raises KafkaError while the store is unavailable.
        """
        async with self._one_at_a_time:
            if self._next < least:
                self._next = self._end = 0
            try:
                await self._run_blocking(lambda: skip_blocks(self._store, self._broker_id, least))
            except StoreError as error:
                raise error_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) from error
            self.least = max(self.least, least)

    @property
    def offered(self) -> int:
        """The next id, if the block has one, else -1."""
        return self._next if self.is_ready else NO_PRODUCER_ID

    def given(self, producer_id: int) -> None:
        """Note that an id was used. If it is the offered one, it is not offered again."""
        if producer_id == self.offered != NO_PRODUCER_ID:
            self._next += 1

    def take(self) -> int:
        """Take an id from a block that has one."""
        assert self.is_ready, "ask is_ready in the same turn of the loop"
        self._next += 1
        return self._next - 1


class Block(NamedTuple):
    """Ids that one broker may allocate, and the smallest one that any broker may allocate."""

    first: int
    least: int


def ids_until_now() -> int:
    """More ids than any cluster has allocated until now. 0 if the clock is certainly wrong."""
    ids = int((time.time() - START_S) * PER_SECOND)
    return ids if 0 <= ids <= MOST_BY_CLOCK else 0


def take_block(store: Store, broker_id: int, left_out: int = 0) -> Block:
    """Take the next block for this broker. Other brokers may do so at the same time. The first
    block of a cluster without topics begins at 0. All others leave out at least ``left_out`` ids
    after the last block, and all that may have been allocated until now, since the store may be
    older than the last block.
    """
    while True:
        try:
            data, version = store.get(NODE)
        except NoNodeError:
            may_be_older = left_out > 0 or _has_topics(store)
            block = Block(_first(-1, 0, left_out) if may_be_older else 0, 0)
            try:
                store.create(NODE, _node(broker_id, block))
            except NodeExistsError:
                continue
            return block
        last, least = _read(data)
        block = Block(_first(last, least, left_out), least)
        try:
            store.set(NODE, _node(broker_id, block), version)
        except BadVersionError:
            continue
        return block


def _has_topics(store: Store) -> bool:
    try:
        return bool(store.children(TOPICS))
    except NoNodeError:
        return False


def _first(last: int, least: int, left_out: int) -> int:
    """The first id of the block after the last one."""
    return max(last + 1 + left_out, least + ids_until_now())


def skip_blocks(store: Store, broker_id: int, least: int) -> None:
    """Make the next block begin at this id or above."""
    while True:
        try:
            data, version = store.get(NODE)
        except NoNodeError:
            take_block(store, broker_id)
            continue
        last, known = _read(data)
        if known >= least:
            return
        first = max(last + 1, least) - BLOCK_SIZE
        try:
            store.set(NODE, _node(broker_id, Block(first, least)), version)
        except BadVersionError:
            continue
        return


def _read(data: bytes) -> tuple[int, int]:
    """The last id of the last block, and the smallest one that may be allocated."""
    node = json.loads(data)
    return int(node["block_end"]), int(node.get(LEAST, 0))


def _node(broker_id: int, block: Block) -> bytes:
    node = {
        "version": 1,
        "broker": broker_id,
        "block_start": str(block.first),
        "block_end": str(block.first + BLOCK_SIZE - 1),
    }
    if block.least:
        node[LEAST] = str(block.least)
    return json.dumps(node, separators=(",", ":")).encode()
